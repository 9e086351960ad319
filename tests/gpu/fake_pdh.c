/* A performance-counter library that answers from a text file, with the system's own calling conventions for these functions: arrays of
   items whose names stand behind them in the same buffer. FAKE_PDH names the file; lines: "counter-path<TAB>instance<TAB>value",
   "status<TAB>add|collect|array<TAB>code", "grow<TAB>x<TAB>n" (the first n questions for values find the array grown). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

typedef struct { unsigned status; union { double d; long long l; } value; } Counter;
typedef struct { wchar_t *name; Counter counter; } Item;
typedef struct { wchar_t path[128]; } Handle;
static Handle handles[16];
static unsigned used;
static int grow = -1;
static unsigned grown;

static unsigned status_of(const char *what) {
    FILE *file = fopen(getenv("FAKE_PDH"), "r");
    char line[512], name[64]; unsigned code = 0, found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "status\t%63[^\t]\t%x", name, &code) == 2 && !strcmp(name, what)) found = code;
    fclose(file);
    return found;
}
unsigned PdhOpenQueryW(const wchar_t *source, size_t user, void **query) { (void)source; (void)user; *query = handles; used = 0; grow = -1; grown = 0; return status_of("open"); }
unsigned PdhAddEnglishCounterW(void *query, const wchar_t *path, size_t user, void **counter) {
    (void)query; (void)user;
    unsigned bad = status_of("add");
    if (bad) return bad;
    if (used == 16) return 1;
    wcsncpy(handles[used].path, path, 127);
    *counter = &handles[used++];
    return 0;
}
unsigned PdhCollectQueryData(void *query) { (void)query; return status_of("collect"); }
unsigned PdhCloseQuery(void *query) { (void)query; return 0; }
unsigned PdhGetFormattedCounterArrayW(Handle *counter, unsigned format, unsigned *size, unsigned *count, char *buffer) {
    char line[512], path[128], name[128], text[64], wanted[128];
    unsigned items = 0, bytes, bad = status_of("array");
    size_t characters = 0;
    if (bad) return bad;
    wcstombs(wanted, counter->path, sizeof wanted);
    for (int pass = 0; pass < 2; pass++) {
        FILE *file = fopen(getenv("FAKE_PDH"), "r");
        unsigned at = 0;
        wchar_t *names = NULL;
        if (pass) {
            bytes = items * sizeof(Item) + characters * sizeof(wchar_t);
            if (grow > 0 && buffer && items) grow--, grown++;
            bytes += 512 * grown;
            if (!items) { *size = 0; *count = 0; fclose(file); return 0; }
            if (!buffer || *size < bytes) { *size = bytes; fclose(file); return 0x800007D2; }
            names = (wchar_t *)(buffer + items * sizeof(Item));
        }
        while (fgets(line, sizeof line, file)) {
            int n;
            if (sscanf(line, "grow\t%*[^\t]\t%d", &n) == 1 && grow < 0) grow = n;
            if (sscanf(line, "%127[^\t]\t%127[^\t]\t%63s", path, name, text) != 3 || strcmp(path, wanted)) continue;
            if (!pass) { items++; characters += strlen(name) + 1; continue; }
            Item *item = (Item *)buffer + at++;
            item->name = names;
            item->counter.status = strcmp(text, "invalid") ? 0 : 0xC0000BBA;
            if (format & 0x200) item->counter.value.d = atof(text); else item->counter.value.l = atoll(text);
            mbstowcs(names, name, strlen(name) + 1);
            names += strlen(name) + 1;
        }
        fclose(file);
        if (pass) *count = at;
    }
    return 0;
}
