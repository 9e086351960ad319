/* A driver library that answers from a text file, so that NVML is tested at its own border: the real binding calls it through ctypes.

   The file named by FAKE_NVML is read at each start (nvmlInitWithFlags). Lines: "key value" for all, "N key value" for device N.
   Error numbers are NVML's own: 3 not supported, 4 no permission, 9 driver not loaded, 15 lost, 18 versions differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;
typedef struct {
    char name[96], uuid[96], pci[32];
    ull total, reserved, free, step;
    unsigned gen, width, gen_max, width_max, sent, received, replays, replay_step, power, power_limit, temperature, busy, model;
    ull throttle;
    int link_error, memory_error, memory_v2_error, process_error, model_error, power_error, lost_after, calls, processes;
    unsigned pids[8];
    ull held[8];
} Device;

static Device devices[8];
static unsigned count, peer, level;
static int init_error, gone_after, calls, started;
static char version[80];

static void reset(void) {
    memset(devices, 0, sizeof devices);
    count = 0; init_error = 0; gone_after = -1; calls = 0; peer = 0; level = 30;
    strcpy(version, "580.95.05");
    for (int i = 0; i < 8; i++) { devices[i].lost_after = -1; devices[i].model_error = 3; }
}

static void set(Device *d, const char *key, const char *value) {
    ull n = strtoull(value, NULL, 0);
    if (!strcmp(key, "name")) snprintf(d->name, sizeof d->name, "%s", value);
    else if (!strcmp(key, "uuid")) snprintf(d->uuid, sizeof d->uuid, "%s", value);
    else if (!strcmp(key, "pci")) snprintf(d->pci, sizeof d->pci, "%s", value);
    else if (!strcmp(key, "total")) d->total = n;
    else if (!strcmp(key, "reserved")) d->reserved = n;
    else if (!strcmp(key, "free")) d->free = n;
    else if (!strcmp(key, "step")) d->step = n;
    else if (!strcmp(key, "gen")) d->gen = n;
    else if (!strcmp(key, "width")) d->width = n;
    else if (!strcmp(key, "gen_max")) d->gen_max = n;
    else if (!strcmp(key, "width_max")) d->width_max = n;
    else if (!strcmp(key, "sent")) d->sent = n;
    else if (!strcmp(key, "received")) d->received = n;
    else if (!strcmp(key, "replays")) d->replays = n;
    else if (!strcmp(key, "replay_step")) d->replay_step = n;
    else if (!strcmp(key, "link_error")) d->link_error = n;
    else if (!strcmp(key, "power")) d->power = n;
    else if (!strcmp(key, "power_limit")) d->power_limit = n;
    else if (!strcmp(key, "temperature")) d->temperature = n;
    else if (!strcmp(key, "busy")) d->busy = n;
    else if (!strcmp(key, "throttle")) d->throttle = n;
    else if (!strcmp(key, "model")) { d->model = n; d->model_error = 0; }
    else if (!strcmp(key, "memory_error")) d->memory_error = n;
    else if (!strcmp(key, "memory_v2_error")) d->memory_v2_error = n;
    else if (!strcmp(key, "process_error")) d->process_error = n;
    else if (!strcmp(key, "power_error")) d->power_error = n;
    else if (!strcmp(key, "lost_after")) d->lost_after = n;
    else if (!strcmp(key, "process") && d->processes < 8) {
        unsigned pid = 0; char size[32] = "";
        sscanf(value, "%u %31s", &pid, size);
        d->pids[d->processes] = pid;
        d->held[d->processes++] = strcmp(size, "none") ? strtoull(size, NULL, 0) : ~0ull;
    }
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    reset();
    if (!file) return 9;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        char *space = strchr(line, ' ');
        if (!space) continue;
        *space = 0;
        char *value = space + 1;
        if (line[0] >= '0' && line[0] <= '7' && !line[1]) {
            unsigned index = line[0] - '0';
            char *second = strchr(value, ' ');
            if (!second) continue;
            *second = 0;
            if (index + 1 > count) count = index + 1;
            set(&devices[index], value, second + 1);
        } else if (!strcmp(line, "init_error")) init_error = atoi(value);
        else if (!strcmp(line, "gone_after")) gone_after = atoi(value);
        else if (!strcmp(line, "peer")) peer = atoi(value);
        else if (!strcmp(line, "level")) level = atoi(value);
        else if (!strcmp(line, "version")) snprintf(version, sizeof version, "%s", value);
    }
    fclose(file);
    if (!init_error) started++;
    return init_error;
}

static int state(const Device *d) {
    if (!started) return 1;
    if (gone_after >= 0 && calls > gone_after) return 9;
    if (d && d->lost_after >= 0 && d->calls > d->lost_after) return 15;
    return 0;
}
#define CHECK(d) do { int bad = state(d); if (bad) return bad; } while (0)

int nvmlShutdown(void) { if (!started) return 1; started--; return 0; }
const char *nvmlErrorString(int code) { (void)code; return "fake"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { CHECK(NULL); snprintf(out, size, "%s", version); return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { CHECK(NULL); *out = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    CHECK(NULL);
    if (index >= count) return 2;
    *out = &devices[index];
    return 0;
}
int nvmlDeviceGetName(Device *d, char *out, unsigned size) { CHECK(d); snprintf(out, size, "%s", d->name); return 0; }
int nvmlDeviceGetUUID(Device *d, char *out, unsigned size) { CHECK(d); if (!d->uuid[0]) return 3; snprintf(out, size, "%s", d->uuid); return 0; }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Device *d, Pci *out) {
    CHECK(d);
    if (!d->pci[0]) return 3;
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", d->pci);
    return 0;
}

typedef struct { ull total, free, used; } Memory1;
typedef struct { unsigned version; ull total, reserved, free, used; } Memory2;
static void grow(Device *d) {
    calls++; d->calls++;
    d->free = d->free > d->step ? d->free - d->step : 0;
}
int nvmlDeviceGetMemoryInfo(Device *d, Memory1 *out) {
    grow(d); CHECK(d);
    if (d->memory_error) return d->memory_error;
    out->total = d->total; out->free = d->free; out->used = d->total - d->free;
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *out) {
    if (d->memory_v2_error) return d->memory_v2_error;
    grow(d); CHECK(d);
    if (d->memory_error) return d->memory_error;
    out->total = d->total; out->reserved = d->reserved; out->free = d->free;
    out->used = d->total - d->free; /* some drivers count the reserved part as used */
    return 0;
}

typedef struct { unsigned pid; ull held; unsigned gpu_instance, compute_instance; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *size, Process *out) {
    CHECK(d);
    if (d->process_error) return d->process_error;
    unsigned room = *size;
    *size = d->processes;
    if (!d->processes) return 0;
    if (room < (unsigned)d->processes || !out) return 7;
    for (int i = 0; i < d->processes; i++) { memset(&out[i], 0, sizeof out[i]); out[i].pid = d->pids[i]; out[i].held = d->held[i]; }
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *d, unsigned *size, Process *out) {
    (void)out; CHECK(d);
    if (d->process_error) return d->process_error;
    *size = 0;
    return 0;
}

int nvmlDeviceGetDriverModel_v2(Device *d, unsigned *now, unsigned *next) { CHECK(d); if (d->model_error) return d->model_error; *now = *next = d->model; return 0; }
#define NUMBER(function, field) int function(Device *d, unsigned *out) { CHECK(d); *out = d->field; return 0; }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, gen)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, gen_max)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, width_max)
NUMBER(nvmlDeviceGetPowerManagementLimit, power_limit)
/* kilobytes a second; the real one waits 20 ms */
int nvmlDeviceGetPcieThroughput(Device *d, int direction, unsigned *out) {
    CHECK(d);
    if (d->link_error) return d->link_error;
    *out = direction ? d->received : d->sent;
    return 0;
}
int nvmlDeviceGetPcieReplayCounter(Device *d, unsigned *out) {
    CHECK(d);
    if (d->link_error) return d->link_error;
    *out = d->replays; d->replays += d->replay_step;
    return 0;
}
int nvmlDeviceGetPowerUsage(Device *d, unsigned *out) { CHECK(d); if (d->power_error) return d->power_error; *out = d->power; return 0; }
int nvmlDeviceGetTemperature(Device *d, int sensor, unsigned *out) { (void)sensor; CHECK(d); *out = d->temperature; return 0; }
int nvmlDeviceGetUtilizationRates(Device *d, unsigned *out) { CHECK(d); out[0] = d->busy; out[1] = 0; return 0; }
/* only the older of the two names, as drivers before 535 have it */
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, ull *out) { CHECK(d); *out = d->throttle; return 0; }
int nvmlDeviceGetTopologyCommonAncestor(Device *a, Device *b, unsigned *out) { CHECK(a); CHECK(b); *out = level; return 0; }
int nvmlDeviceGetP2PStatus(Device *a, Device *b, unsigned index, unsigned *out) { CHECK(a); CHECK(b); *out = index == 2 ? 5 : peer; return 0; }
