"""Takes keys, names, addresses and prompts out of text that leaves the machine.

A placeholder says of what kind a thing was and is the same wherever that thing stands: the same host stays the same host. What helps a reader
stays: names of models and files, versions, sizes, numbers, flags, loopback addresses, fingerprints of model headers, hosts that everybody knows.

It works on shapes: known forms of keys, words such as ``api_key`` before a value, home folders, addresses, and, for keys of no known form, runs of
letters and digits that nobody would choose as a name. What has no known shape stays; the report says so.
"""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import os
import re
import socket
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from probes.evidence.words import Words, words

from .escape import Ours

if TYPE_CHECKING:
    from .document import CaseDocument

KINDS: Final[dict[str, Words]] = {
    "key": words("Keys, tokens and passwords"),
    "user": words("User names"),
    "host": words("Names of machines"),
    "ip": words("Network addresses"),
    "mac": words("Hardware addresses of network cards"),
    "email": words("E-mail addresses"),
    "uuid": words("Identifiers of devices"),
    "serial": words("Serial numbers"),
    "prompt": words("Texts of prompts and answers"),
    "volume": words("Names of drives"),
    "phone": words("Telephone numbers"),
}

_PUBLIC_HOSTS: Final = re.compile(
    r"(?:.*\.)?(?:github\.com|githubusercontent\.com|github\.io|gitlab\.com|huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn|ollama\.(?:com|ai)|"
    r"pytorch\.org|python\.org|pypi\.org|nvidia\.com|amd\.com|intel\.com|apple\.com|microsoft\.com|kernel\.org|vllm\.ai|lmstudio\.ai|docker\.(?:com|io)|"
    r"readthedocs\.io|stackoverflow\.com|reddit\.com|arxiv\.org|wikipedia\.org|json-schema\.org|w3\.org|pydantic\.dev|fastapi\.tiangolo\.com|"
    r"swagger\.io|openai\.com|anthropic\.com|example\.(?:com|org|net))",
    re.IGNORECASE,
)
_LOCAL_HOSTS: Final = frozenset({"localhost", "localhost.localdomain", "host.docker.internal"})
_NOBODY: Final = frozenset({
    "root", "user", "users", "username", "admin", "administrator", "public", "default", "shared", "ubuntu", "debian", "fedora", "arch", "guest", "nobody",
    "runner", "app", "ai", "llm", "llama", "models", "model", "data", "server", "home", "work", "workspace", "local", "docker", "ollama", "vllm", "test",
    "me", "you", "name", "the", "linux", "windows", "darwin", "system", "none", "null", "true", "false", "unknown", "service", "assistant", "tool",
})  # fmt: skip


@cache
def _ordinary_words() -> frozenset[str]:
    """Words of sentences, of logs and of this tool: they are nobody's name where they stand by themselves. Case folded."""
    return frozenset((Path(__file__).parent / "ordinary.txt").read_text(encoding="utf-8").split())


def _ordinary(name: str) -> bool:
    return name.lower() in _ordinary_words()


# A word of these before a value makes it a secret.
_PRIVATE_WORDS = (
    r"(?:api[-_ ]?key|apikey|access[-_ ]?key(?:[-_ ]?id)?|secret(?:[-_ ]?(?:access[-_ ]?)?key)?|private[-_ ]?key|"
    r"(?:admin|master|license|auth|account|storage|subscription|encryption|signing|session|client|shared[-_ ]?access)[-_ ]?key|"
    r"auth(?:entication|orization)?[-_ ]?token|"
    r"(?:access|refresh|id|bearer|session|hf|hugging_?face(?:_hub)?|github|gh|gitlab|bot|personal|security|csrf|xsrf)[-_ ]?token|"
    r"authorization|client[-_ ]?secret|pass(?:word|wd|phrase)|passwort|pwd|credentials?|x-api-key|sessionid|session[-_ ]?id|cookie|set-cookie|"
    r"hf[-_]hub[-_]token|secret[-_]key[-_]base|secret|connection[-_ ]?string|webhook[-_ ]?(?:url|secret)?|비밀번호|비번|패스워드|암호|토큰|"
    r"(?:api|인증|접근|액세스|비밀)[ _]?키)"
)
_NAMED_SECRET = re.compile(
    rf"(?P<name>{_PRIVATE_WORDS})(?P<sep>[\"']?\s*(?:(?:is|was|은|는)\s*)?(?:[:=]|=>|:=)\s*|[\"']\s*,\s*[\"']|(?:\s+(?:for|of)\s+\S{{1,40}})?\s+is:?\s+)"
    r"(?P<scheme>(?:Bearer|Basic|Token|Digest)\s+)?(?P<quote>(?:[brBR](?=[\"']))?\\?[\"'`]?)(?P<value>(?<=[\"'`])[^\"'`\n\x00]{1,4096}|[^\s\"'`,;)}\]<>\x00][^\s\"'`,;)}\]\x00]*)",
    re.IGNORECASE,
)
_NAMED_LIST = re.compile(
    rf"(?P<name>{_PRIVATE_WORDS}s?[\"']?\s*[:=]\s*\[)(?P<value>[^\]\n\x00]{{1,4096}})(?=\])", re.IGNORECASE
)
_COOKIE = re.compile(
    r"(?P<name>\b(?:set-)?cookie2?[\"']?\s*[:=]\s*[\"']?)(?P<value>[^\s\"'=;{(\[\x00]{1,200}=[^\"'\n\x00]{1,4096})",
    re.IGNORECASE,
)
# The variables of an environment: what is in capitals and ends so is no word of a sentence.
_VARIABLE = re.compile(
    r"(?P<name>\b[A-Z][A-Z0-9_]{0,60}_(?:API_?KEY|KEY|TOKEN|SECRET|PASS(?:WORD)?|PAT|CREDENTIALS?|TOKEN_ID|KEY_ID)(?:\s*[:=]\s*|(?<=[A-Z])\s+(?=\S{6,}\s*(?:$|[\n\x00])))[\"']?)"
    r"(?P<value>[^\s\"'<\[{(;,\x00][^\s\"';,\x00]{3,})",
    re.MULTILINE,
)
_CURL_USER = re.compile(
    r"(?P<name>(?<!\S)(?:-u|-U|--user|--proxy-user)(?:\s+|=)[\"']?)(?P<value>[^\s:\"'\x00]{1,64}:[^\s\"'\x00]{1,256})"
)
_HOOK = re.compile(
    r"(?P<lead>\b(?:hooks\.slack\.com|[\w.-]*webhook\.office\.com|discord(?:app)?\.com/api/webhooks|[\w.-]+/(?:webhooks?|hooks))/)(?P<value>[^\s\"'<>)\]},\x00]+)",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"(?P<name>(?<!\S)[\"']?--?(?:api[-_]?keys?|admin[-_]?key|hf[-_]?token|hft|password|passwd|token|auth[-_]?token|secret|ssl-key-password|access[-_]?token|bearer)[\"']?(?:=|\s*,\s*|\s+))"
    r"(?P<quote>[\"']?)(?P<value>(?!-)[^\s\"'\x00]+)",
    re.IGNORECASE,
)
_TOKEN_WORD = re.compile(
    r"(?P<name>(?<![A-Za-z])(?:token|key)(?P<sep>[\"']?(?:\s*[:=]|\s+is:?(?=\s))\s*[\"']?))(?P<value>[A-Za-z0-9._~+/=-]{12,})",
    re.IGNORECASE,
)
_SCHEME = re.compile(
    r"\b(?P<name>(?:Bearer|Basic|Digest|authtoken|KakaoAK)\s+)(?P<value>[A-Za-z0-9._~+/=:-]{8,})", re.IGNORECASE
)
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,20}://)(?P<value>[^\s/@\"'<>\x00]{1,256})@")
_QUERY = re.compile(
    r"(?P<name>[?&](?:[A-Za-z0-9_.-]*(?:key|token|secret|sig|signature|password|passwd|auth|credential|code|session|sid)))=(?P<value>[^&\s\"'#<>\x00]+)",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{8,}|(?:sk|pk|rk|whsec)_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9+/=]{16,}|hf_[A-Za-z0-9]{8,}|gsk_[A-Za-z0-9]{16,}|xai-[A-Za-z0-9]{16,}|"
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|gl(?:pat|dt|rt|ptt|soat|cbt|ft|imt|agent)-[A-Za-z0-9_-]{12,}(?:\.[A-Za-z0-9_-]+)*|"
    r"(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{10,}|1//0[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{10,}|"
    r"xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}|nvapi-[A-Za-z0-9_-]{12,}|r8_[A-Za-z0-9]{12,}|SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|"
    r"npm_[A-Za-z0-9]{16,}|pypi-[A-Za-z0-9_-]{16,}|do[opr]_v1_[a-f0-9]{16,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{16,}|key-[0-9a-f]{16,}|"
    r"tgp_v1_[A-Za-z0-9_-]{12,}|fw_[A-Za-z0-9]{16,}|pplx-[A-Za-z0-9]{16,}|jina_[A-Za-z0-9]{16,}|tvly-[A-Za-z0-9-]{12,}|lsv2_[A-Za-z0-9_]{12,}|lin_api_[A-Za-z0-9]{12,}|"
    r"dckr_pat_[A-Za-z0-9_-]{12,}|hvs\.[A-Za-z0-9_-]{12,}|dapi[a-f0-9]{24,}|sq0[a-z]{3}-[A-Za-z0-9_-]{12,}|ntn_[A-Za-z0-9]{16,}|secret_[A-Za-z0-9]{16,}|"
    r"EAA[A-Za-z0-9]{24,}|AGE-SECRET-KEY-[A-Z0-9]{16,}|tskey-[A-Za-z0-9-]{12,}|cf(?:ut|at)_[A-Za-z0-9]{16,}|wandb_v1_[A-Za-z0-9_]{12,}|"
    r"rpa_[A-Za-z0-9]{16,}|pk-lf-[A-Za-z0-9-]{8,}|sl\.[A-Za-z0-9_-]{24,}|sb[ps]_[A-Za-z0-9_]{16,}|vc[pkai]_[A-Za-z0-9]{16,}|HRKU-[A-Za-z0-9_-]{12,}|"
    r"sntry[su]_[A-Za-z0-9_=+/-]{12,}|figd_[A-Za-z0-9_-]{12,}|ATATT[A-Za-z0-9_=-]{16,}|pat[A-Za-z0-9]{14}\.[a-f0-9]{32,}|ctx7sk-[A-Za-z0-9-]{8,}|"
    r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{4,}){1,4}|\d{8,10}:[A-Za-z0-9_-]{34,36}|"
    r"(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\S+)\s+AAAA[A-Za-z0-9+/=]{16,}(?:[ \t]+[^\s@]{1,64}@[\w.-]{1,64})?"
    r")(?![A-Za-z0-9])"
)
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_RUN = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_HASH_BEFORE = re.compile(
    r"(?:sha-?(?:1|256|512)|md5|blake\w*|digest|hash|checksum|commit|revision|rev|build|version|snapshots?|blobs?|etag|fingerprint|prefix|crc\w*|git|tree|HEAD)[\"'\s:=/@#(\\-]{0,6}$",
    re.IGNORECASE,
)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")

_EMAIL = re.compile(r"(?<![\w.+/-])[^\W_][\w.%+-]{0,63}@[^\W_](?:[\w-]{0,62}\.)+[^\W\d_]{2,24}(?![\w-])")
_LOGIN = re.compile(
    r"(?<![\w.@/-])([A-Za-z_][\w.-]{0,31})@([A-Za-z][A-Za-z0-9.-]{0,62}?)(?=:[~/\\$#]|[:\s][~/]\S*[$#%]|\s*[$#]\s|:\s?~)"
)
# What a shell writes before a command: (base) user@host folder %, [user@host folder]$, (user㉿host)-[~].
_SHELL = re.compile(
    r"(?m)(?P<lead>(?:^|(?<=\x00))[^\w\n\x00]{0,6}(?:\([\w.-]{1,32}\) ?)?[\[(]?)(?P<user>[A-Za-z_][\w.-]{0,31})(?P<at>[@㉿])"
    r"(?P<host>[A-Za-z<][\w.>-]{0,62})(?=[ \])][^\n\x00]{0,80}?[$#%\])])"
)
_AUTHOR = re.compile(
    r"(?m)(?P<name>^\s*(?:Author|Committer|[A-Z][a-z]+(?:-[a-z]+)?-by):\s+|\buser\.name(?:\s+|=)[\"']?)(?P<value>[^<\"'\n\x00]{2,60}?)(?=\s*[<\"'\n\x00]|$)"
)
_SSH = re.compile(
    r"(\b(?:ssh|scp|sftp|rsync)\s[^\n\x00]{0,80}?)(?<![\w.@/-])([A-Za-z_][\w.-]{0,31})@([A-Za-z0-9][A-Za-z0-9.-]{0,62})"
)
_IP4 = re.compile(
    r"(?<![\w.])(?<![vV]\.)(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w]|\.\d)"
)
_VERSION_BEFORE = re.compile(
    r"(?:\bv|version|driver|build|release|runtime|cuda|cudnn|rocm|firmware|engine|[=<>~]=|[-_@])[\"'\s:=(v]{0,4}$",
    re.IGNORECASE,
)
_H = r"[0-9A-Fa-f]{1,4}"
_IP6 = re.compile(
    rf"(?<![\w:.])(?:{_H}(?::{_H}){{7}}|(?:{_H}(?::{_H}){{0,6}})?::(?:{_H}(?::{_H}){{0,6}})?)(?:%\w+)?(?![\w:])"
)
_MAC = re.compile(
    r"(?<![\w:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![\w:-])|"
    r"(?<![\w.])(?=[0-9.]{0,13}[A-Fa-f])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w.])"
)
_PHONE = re.compile(
    r"(?<![\w.+-])(?:\+\d{1,3}[ -](?:\(\d{1,4}\)[ -]?)?\d{1,4}(?:[ -]\d{2,4}){1,3}|\(\d{3}\) ?\d{3}-\d{4}|"
    r"0\d{1,2}-\d{3,4}-\d{4}|[2-9]\d{2}-\d{3}-\d{4})(?![\w.-])"
)
_DISK = re.compile(r"(?P<lead>/dev/disk/by-(?:id|uuid|label|partuuid|partlabel|path)/)(?P<value>[^\s\"',;)\x00]+)")
_UUID = re.compile(
    r"(?<![0-9A-Za-z])(?:(?:GPU|MIG|DLA)-)?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])|"
    r"\bGPU-[0-9a-f]{8,}\b"
)
_SERIAL = re.compile(
    r"(?P<name>(?:serial(?:[-_ ]?(?:number|num|no\.?))?(?:\s*\([^)\n]{1,20}\))?|IOPlatformSerialNumber|\bS/?N\b|service[-_ ]?tag|asset[-_ ]?tag|"
    r"machine[-_ ]?id|product[-_ ]?uuid|hardware[-_ ]?uuid|provisioning[-_ ]?udid)[\"']?"
    r"(?:\s*[:=]\s*[\"']?|\s+(?=\d{8})))(?P<value>[A-Za-z0-9][A-Za-z0-9._-]{4,})",
    re.IGNORECASE,
)
_SID = re.compile(r"\bS-1-5-21(?:-\d{1,10}){3,4}\b")

_HOME = re.compile(
    r"(?P<lead>(?:/(?:var/|mnt/[a-z]/|private/|host_mnt/|usr/|export/|net/)?(?:homes?|Users|Home)/)|(?:%2F(?:home|Users)%2F)|"
    r"(?:(?:\b[A-Za-z]:|\\\\[^\\\s]{1,64}|/[a-z])[\\/]{1,4}(?:[Uu]sers|USERS|Documents and Settings)[\\/]{1,4})"
    r"|(?:\\{1,4}(?:home|Users)\\{1,4})|/run/media/|/media/)"
    r"(?P<user>[^\\/\s\"'`:*?<>|%,;()\[\]{}\x00]{1,64}(?: [^\\/\s\"'`:*?<>|%,;()\[\]{}\x00]{1,32}){0,2}?(?=\\|/)|[^\\/\s\"'`:*?<>|%,;()\[\]{}\x00]{1,64})"
)
_TILDE = re.compile(r"(?<![\w~/.])~(?P<user>[A-Za-z][\w.-]{1,31})(?=/)")
_IN_HOME = re.compile(r"(?P<lead>(?<![\w~/.])~/)(?P<user>[A-Za-z][a-z]{2,19})(?![\w.-])")
_SHARED = re.compile(
    r"(?P<lead>(?<![\\\w:])\\{2,4}(?:<host-\d+>|[A-Za-z0-9][\w.-]{1,62})\\{1,2}[\w$.-]{1,64}\\{1,2})(?P<user>[A-Za-z][a-z]{2,19})(?![\w.-])"
)
_VOLUME = re.compile(r"(/Volumes/)([^/\n\"'\x00]{1,64})(?=/)")
_UNC = re.compile(r"(?<![\\\w:])(?P<lead>\\{2,4})(?P<host>[A-Za-z0-9][\w.-]{1,62})(?=\\{1,2}[A-Za-z0-9_$])")
# "user: alice" and a line's end is a name; "for the user: said so" is a sentence.
_ENDS = r"(?=[\"']?\s*(?:$|[,;)}\]|\n\x00]))"
_NAMED_USER = re.compile(
    r"(?P<name>(?<![A-Za-z0-9])(?:USER(?:NAME)?|LOGNAME|SUDO_USER|[Uu]ser|[Ll]ogin|[Oo]wner|[Aa]uthor)[\"']?=[\"']?)(?P<value>[A-Za-z_][\w.-]{1,63})(?![\w.]*[(\[])|"
    r"(?P<name2>(?<![A-Za-z0-9])(?:(?:[Uu]ser[-_ ]?name|[Aa]ccount[-_ ]?name|[Ff]ull[-_ ]?name)[\"']?\s*(?:[:=]|\bis\b)|"
    r"[Ll]ogged in as|[Rr]un(?:ning)? as user)\s*[\"']?)"
    r"(?P<value2>[A-Za-z_][\w.-]{1,63})(?![\w.]*[(\[])|"
    r"(?P<name3>(?<![A-Za-z0-9] )(?<![A-Za-z0-9])(?:USER|[Uu]ser|[Ll]ogin|[Oo]wner|[Aa]uthor)[\"']?\s*:\s*[\"']?)(?P<value3>[A-Za-z_][\w.-]{1,63})"
    + _ENDS
    + r"|(?P<name6>\bsudo(?:\[\d+\])?:\s+)(?P<value6>[A-Za-z_][\w.-]{0,63})(?=\s+:)|"
    r"(?P<name4>\b(?:uid|gid)=\d+\()(?P<value4>[A-Za-z_][\w.-]{0,63})|(?P<name5>\bgroups=[^\n\x00]{0,60}\()(?P<value5>[A-Za-z_][\w.-]{0,63})",
    re.MULTILINE,
)
_NAMED_HOST = re.compile(
    r"(?P<lead>(?<![A-Za-z0-9])(?:HOST(?:NAME)?|COMPUTERNAME|USERDOMAIN(?:_ROAMINGPROFILE)?|LOGONSERVER|host)[\"']?=[\"']?)(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{1,62})(?![\w.]*[/(\[])|"
    r"(?P<lead2>(?<![A-Za-z0-9])(?:[Hh]ost[-_ ]?[Nn]ame|[Nn]ode[-_ ]?name|[Cc]omputer(?:[-_ ]?[Nn]ame)?|[Mm]achine[-_ ]?[Nn]ame|[Ss]erver[-_ ]?name|HOSTNAME|"
    r"[Ll]ocal[-_ ]?[Hh]ost[-_ ]?[Nn]ame|fqdn|FQDN)[\"']?\s*[:=]\s*[\"']?)(?P<host2>[A-Za-z0-9][A-Za-z0-9._-]{1,62})(?![\w.]*[/(\[])|"
    r"(?P<lead3>(?<![A-Za-z0-9] )(?<![A-Za-z0-9])(?:HOST|[Hh]ost)[\"']?\s*:\s*[\"']?)(?P<host3>[A-Za-z0-9][A-Za-z0-9._-]{1,62})(?::\d{1,5})?"
    + _ENDS,
    re.MULTILINE,
)
_HOST_OPTION = re.compile(
    r"(?P<lead>(?<!\S)--?(?:host|hostname|rpc|server|master-addr|node-ip|dist-init-addr|listen|bind)(?:=|\s+)|(?<=:\d{5},)|(?<=:\d{4},))(?P<host>[A-Za-z][A-Za-z0-9.-]{1,62})(?=:\d|\s|$|,)"
)
_LISTED = re.compile(
    r"(?m)^(?P<lead>[-dlcbps][rwxsStT-]{9}[.+@]?\s+\d+\s+)(?P<user>[A-Za-z_][\w.-]{0,31})(?P<gap>\s+)(?P<group>[A-Za-z_][\w.-]{0,31})(?=\s+\d)"
)
_PROCESS = re.compile(r"(?m)^(?P<user>[a-z_][\w.+-]{0,31})(?=\s+\d+\s+\d{1,3}\.\d\s+\d{1,3}\.\d\s)")
_UNAME = re.compile(r"(?P<lead>\b(?:Linux|Darwin|FreeBSD)\s+)(?P<host>[A-Za-z][A-Za-z0-9._-]{1,62})(?=\s+\d+\.\d+)")
_SYSLOG = re.compile(
    r"(?m)^(?P<lead>(?:[A-Z][a-z]{2}\s+\d{1,2}\s+\d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?)\s+)(?P<host>[A-Za-z][A-Za-z0-9._-]{1,62})(?=\s+[\w./-]{1,40}(?:\[\d+\])?:\s)"
)
_URL_HOST = re.compile(
    r"(?P<lead>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://(?:<[a-z]+-\d+>@)?)(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?)(?=[:/?#\s\"'<>),.;\]}\x00]|$)"
)
_INTERNAL = re.compile(
    r"(?<![\w.@/-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.)+(?:local|lan|internal|intranet|home|corp|localdomain|home\.arpa|ts\.net|private|priv|ddns\.net|duckdns\.org|ngrok\.io|ngrok-free\.app|trycloudflare\.com|localnet|fritz\.box|mshome\.net|sslip\.io|nip\.io|gradio\.live|runpod\.net|vast\.ai|hf\.space|loca\.lt)(?![\w-]|\.\w)",
    re.IGNORECASE,
)
_SLASHES = re.compile(
    r"(?P<lead>(?:^|(?<=[\s\"'=(,\x00]))//)(?P<host>[A-Za-z0-9][\w.-]{1,62})(?=/[A-Za-z0-9_$])", re.MULTILINE
)
_MOUNT = re.compile(r"(?P<lead>(?<![\w./:-]))(?P<host>[A-Za-z][\w.-]{1,62})(?=:/(?:exports?|volume\d*|nfs|srv)/)")
_SSID = re.compile(r"(?P<lead>\bB?SSID[\"']?\s*[:=]\s*[\"']?)(?P<host>[^\s\"',;\x00][^\"',;\n\x00]{0,62})")
_MACHINE = re.compile(
    r"(?<![\w.-])(?:ip-\d{1,3}(?:-\d{1,3}){3}|(?:DESKTOP|LAPTOP|WIN|PC|WORKSTATION)-[A-Z0-9]{4,15}|[A-Za-z][A-Za-z0-9]{1,30}s?-(?:MacBook(?:-(?:Pro|Air))?|iMac(?:-Pro)?|Mac-(?:mini|Studio|Pro)|MBP|PC|Laptop|Desktop|ThinkPad|XPS)(?:-\d+)?)(?![\w-])"
)
_PROMPT = re.compile(
    r"(?P<name>(?<![A-Za-z0-9])[\"']?(?:[a-z]+_)?(?:prompt|content|messages?|input(?:_text)?|text|system(?:[-_]prompt)?|instruction|query|question|completion|response|answer|suffix|user_input|negative_prompt)[\"']?\s*(?:[:=])\s*)"
    r"(?P<value>\"(?:[^\"\\\n\x00]|\\.){1,60000}\"|'(?:[^'\\\n\x00]|\\.){1,60000}')",
    re.IGNORECASE,
)
_PROMPT_OPTION = re.compile(
    r"(?P<name>(?<!\S)(?:-p|--prompt|-sys|--system-prompt|--in-prefix|--in-suffix|-r|--reverse-prompt|--grammar|--system)(?:=|\s+))(?P<value>\"(?:[^\"\\\n\x00]|\\.)*\"|'[^'\n\x00]*')",
)
_SHOWN_TAIL: Final = 24

CHUNK: Final = 1 << 16
LONGEST_TOKEN: Final = 1 << 20


class Redactor:
    """Replaces what is private, always the same thing by the same placeholder. One object for everything that is shared together.

    ``users``, ``hosts`` and ``secrets`` are known beforehand; with ``local`` this machine's own names, home and key are added.
    """

    def __init__(
        self, *, users: Iterable[str] = (), hosts: Iterable[str] = (), secrets: Iterable[str] = (), local: bool = True
    ) -> None:
        self.found: Counter[str] = Counter()
        self._names: dict[str, dict[str, str]] = {}
        self._users: set[str] = set()
        self._hosts: set[str] = set()
        self._secrets: set[str] = {s for s in secrets if len(s) >= 4}
        self._in_key = False
        self._forms: dict[str, int] = {}
        if local:
            self._know_here()
        for user in users:
            self._learn_user(user)
        for host in hosts:
            self._learn_host(host)

    def _know_here(self) -> None:
        with contextlib.suppress(Exception):
            self._learn_user(getpass.getuser())
        with contextlib.suppress(Exception):
            self._learn_user(Path.home().name)
        with contextlib.suppress(Exception):
            self._learn_host(socket.gethostname())
        for name, value in os.environ.items():
            if value and len(value) >= 8 and re.search(r"(?:API_?KEY|TOKEN|SECRET|PASSWORD)$", name, re.IGNORECASE):
                self._secrets.add(value)

    # Names that were seen are taken out wherever they stand; one that is an ordinary word only in its own place: in a path, before an @.

    def _learn_user(self, name: str) -> None:
        if (
            len(name) >= 3
            and name.lower() not in _NOBODY
            and not name.isdigit()
            and name not in self._users
            and not _ordinary(name)
        ):
            self._users.add(name)

    def _learn_host(self, name: str) -> None:
        if (
            len(name) >= 3
            and name.lower() not in _NOBODY | _LOCAL_HOSTS
            and not _PUBLIC_HOSTS.fullmatch(name)
            and name not in self._hosts
            and not _ordinary(name)
        ):
            self._hosts.add(name)
            short = name.partition(".")[0]
            if len(short) >= 4 and short.lower() not in _NOBODY and not short.isdigit() and not _ordinary(short):
                self._hosts.add(short)

    def _name(self, kind: str, value: str) -> str:
        known = self._names.setdefault(kind, {})
        key = value.lower() if kind in {"host", "email", "uuid", "mac"} else value
        if kind == "host":
            # A machine's short and full name are one machine.
            key = next((k for k in known if k.partition(".")[0] == key.partition(".")[0]), key)
        if key not in known:
            known[key] = f"<{kind}-{len(known) + 1}>"
        self.found[kind] += 1
        return known[key]

    def _prompt(self, value: str) -> str:
        self.found["prompt"] += 1
        return f"<prompt: {len(value)} characters>"

    # The work -------------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Give the text without what is private."""
        if not text:
            return text
        self._in_key = False
        out = self._chunk(text)
        self._in_key = False
        return out

    def lines(self, source: Iterable[str]) -> Iterator[str]:
        """Give a long text piece by piece, without what is private; memory stays at about one piece of ``CHUNK`` characters."""
        self._in_key = False
        waiting: list[str] = []
        held = 0
        for piece in source:
            waiting.append(piece)
            held += len(piece)
            if held < CHUNK:
                continue
            whole = "".join(waiting)
            cut = whole.rfind("\n") + 1
            if not cut and len(whole) >= LONGEST_TOKEN:
                cut = max(whole.rfind(" "), whole.rfind("\t")) + 1
                if not cut:
                    # A word of a million characters is data; half of a secret must not stand at its end.
                    self.found["prompt"] += 1
                    yield f"<data: {len(whole)} characters>"
                    waiting, held = [], 0
                    continue
            if cut:
                yield self._chunk(whole[:cut])
            waiting = [whole[cut:]]
            held = len(waiting[0])
        if held:
            yield self._chunk("".join(waiting))
        self._in_key = False

    def stream(self, source: TextIO, sink: TextIO) -> None:
        """Copy a long text, of any size, without what is private."""
        sink.writelines(self.lines(iter(lambda: source.read(CHUNK), "")))

    def left_out(self) -> tuple[Words, ...]:
        """Say what was replaced: one sentence for each kind."""
        said = []
        for kind, name in KINDS.items():
            if self.found[kind]:
                different = len(self._names.get(kind, ())) or self.found[kind]
                if self.found[kind] == 1:
                    said.append(words("{kind}: one, replaced once", kind=name))
                    continue
                said.append(
                    words(
                        "{kind}: {different} different, replaced {times} times",
                        kind=name,
                        different=Ours(str(different)),
                        times=Ours(str(self.found[kind])),
                    )
                )
        return tuple(said)

    def _chunk(self, text: str) -> str:
        text = self._keys_in_blocks(text)
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, self._name("key", secret))
        # Most lines hold nothing, and most have a form that was seen before: only a line with a sign of something is read by the pattern that
        # looks for it. A sign never depends on which digit stands somewhere, so lines that differ in digits are of one form.
        lines = text.split("\n")
        forms = text.translate(_FORM).split("\n")
        known = self._forms
        new = [form for form in dict.fromkeys(forms) if form not in known]
        if new:
            if len(known) > _MOST_FORMS:
                known.clear()
                new = list(dict.fromkeys(forms))
            signs = _signs("\n".join(new))
            for at, form in enumerate(new):
                known[form] = signs.get(at, 0)
        for at, form in enumerate(forms):
            if known[form]:
                lines[at] = self._line(lines[at], known[form])
        text = "\n".join(lines)
        return self._names_again(text)

    def _line(self, line: str, signs: int) -> str:
        for sign, read in _READERS:
            if signs & sign:
                line = read(self, line)
        return line

    def _keys_in_blocks(self, text: str) -> str:
        if not self._in_key and "-----BEGIN" not in text:
            return text
        out: list[str] = []
        at = 0
        while True:
            if not self._in_key:
                start = _PEM.search(text, at)
                if start is None:
                    out.append(text[at:])
                    return "".join(out)
                out.append(text[at : start.start()] + self._name("key", f"block {self.found['key']}"))
                at = start.end()
                self._in_key = True
            end = _PEM_END.search(text, at)
            stop = text.find("\x00", at)
            if stop >= 0 and (end is None or stop < end.start()):
                at, self._in_key = stop, False
                continue
            if end is None:
                return "".join(out)
            at, self._in_key = end.end(), False

    def _secret(self, match: re.Match[str]) -> str:
        value = match.group("value")
        if (
            value.startswith("<")
            or _harmless(value)
            or (match.group("name").lower().endswith("pwd") and _FOLDER.match(value))
        ):
            return match.group()
        start, end = match.span("value")
        if match.start() and match.string[match.start() - 1] in "?&" and "&" in value:
            # In an address the next parameter begins there.
            value = value.partition("&")[0]
            end = start + len(value)
        whole, base = match.group(), match.start()
        return whole[: start - base] + self._name("key", value) + whole[end - base :]

    def _token(self, match: re.Match[str]) -> str:
        value = match.group("value")
        # Logs of language models are full of the word "token": only what no count, name or path looks like is meant.
        named = "/" in value and not _random(value)  # a path, or a model and its maker
        return self._secret(match) if _mixed(value) and not named else match.group()

    def _named_secrets(self, text: str) -> str:
        text = _COOKIE.sub(self._secret, text)
        if "[" in text:
            text = _NAMED_LIST.sub(self._secret, text)
        return _NAMED_SECRET.sub(self._secret, text)

    def _variables(self, text: str) -> str:
        return _VARIABLE.sub(self._variable, text)

    def _variable(self, match: re.Match[str]) -> str:
        value = match.group("value")
        # After a colon stands a word of a sentence as well.
        told = ":" in match.group("name") and not _mixed(value)
        return match.group() if told or _DIGITS.fullmatch(value) else self._secret(match)

    def _logins(self, text: str) -> str:
        return _CURL_USER.sub(self._secret, text) if "curl" in text or "wget" in text or "http" in text else text

    def _telephones(self, text: str) -> str:
        return _PHONE.sub(
            lambda m: self._name("phone", m.group()) if sum(map(str.isdigit, m.group())) >= 9 else m.group(), text
        )

    def _disks(self, text: str) -> str:
        return _DISK.sub(lambda m: m.group("lead") + self._name("serial", m.group("value")), text)

    def _bare_tokens(self, text: str) -> str:
        return _TOKEN_WORD.sub(self._token, text)

    def _options(self, text: str) -> str:
        return _OPTION.sub(self._secret, text)

    def _schemes(self, text: str) -> str:
        return _SCHEME.sub(
            lambda m: self._secret(m) if _mixed(m.group("value")) or len(m.group("value")) > 20 else m.group(), text
        )

    def _addresses(self, text: str) -> str:
        text = _USERINFO.sub(lambda m: m.group("scheme") + self._name("key", m.group("value")) + "@", text)
        if "hook" in text.lower():
            text = _HOOK.sub(lambda m: m.group("lead") + self._name("key", m.group("value")), text)
        return _QUERY.sub(self._secret, text)

    def _known_keys(self, text: str) -> str:
        return _KNOWN.sub(lambda m: self._name("key", m.group()), text)

    def _runs(self, text: str) -> str:
        return _RUN.sub(self._run, text)

    def _run(self, match: re.Match[str]) -> str:
        run = match.group()
        if not _random(run):
            return run
        before = match.string[max(0, match.start() - 40) : match.start()]
        if _HEX.fullmatch(run.strip("=-_")) and _HASH_BEFORE.search(before):
            return run
        # A UUID has its own placeholder; a path is cut at its slashes.
        if _UUID.search(run):
            return run
        if "/" in run and not run.endswith("=") and not _FORTY.fullmatch(run):
            parts = run.split("/")
            if len(parts) > 1 and any(not _random(p) for p in parts if len(p) > 2):
                return "/".join(
                    self._name("key", p) if len(p) >= 20 and _random(p) and not _HEX.fullmatch(p) else p for p in parts
                )
        return self._name("key", run)

    def _prompts(self, text: str) -> str:
        text = _PROMPT.sub(self._prompt_value, text)
        return _PROMPT_OPTION.sub(self._prompt_value, text)

    def _prompt_value(self, match: re.Match[str]) -> str:
        value = match.group("value")[1:-1]
        if _MESSAGE.search(match.group("name")) and not _TALK.search(match.string, *_line_at(match)):
            # What a server answers with, "message" beside a code: the error itself, which a reader needs.
            return match.group()
        if len(value) <= _SHOWN_TAIL and (" " not in value.strip() or value.startswith("<")):
            return match.group()
        quote = match.group("value")[0]
        return f"{match.group('name')}{quote}{self._prompt(value)}{quote}"

    def _homes(self, text: str) -> str:
        def home(match: re.Match[str]) -> str:
            user = match.group("user")
            if user.lower() in _NOBODY or user.startswith("<"):
                return match.group()
            self._learn_user(user)
            return match.group("lead") + self._name("user", user)

        text = _HOME.sub(home, text)
        text = _TILDE.sub(lambda m: "~" + self._name("user", m.group("user")), text)
        text = _IN_HOME.sub(self._perhaps_user, text)
        return _VOLUME.sub(lambda m: m.group(1) + self._name("volume", m.group(2)), text)

    def _perhaps_user(self, match: re.Match[str]) -> str:
        """A folder that may be called after a person: a word that is in no sentence and no log."""
        user = match.group("user")
        if user.lower() in _NOBODY or _ordinary(user):
            return match.group()
        return str(match.group("lead")) + self._name("user", user)

    def _mail(self, text: str) -> str:
        def login(match: re.Match[str]) -> str:
            self._learn_host(match.group(2))
            user = match.group(1)
            if user.lower() not in _NOBODY:
                self._learn_user(user)
                user = self._name("user", user)
            return f"{user}@{self._name('host', match.group(2))}"

        def shell(match: re.Match[str]) -> str:
            user, host = match.group("user"), match.group("host")
            if user.lower() not in _NOBODY:
                self._learn_user(user)
                user = self._name("user", user)
            if not host.startswith("<"):
                self._learn_host(host)
                host = self._name("host", host)
            return f"{match.group('lead')}{user}{match.group('at')}{host}"

        def author(match: re.Match[str]) -> str:
            value = match.group("value").strip()
            if value.startswith("<") or value.lower() in _NOBODY:
                return match.group()
            self._learn_user(value)
            return match.group("name") + self._name("user", value)

        if "-by:" in text or "user.name" in text or "Author:" in text or "Committer:" in text:
            text = _AUTHOR.sub(author, text)
        text = _EMAIL.sub(lambda m: self._name("email", m.group()), text)
        text = _SHELL.sub(shell, _LOGIN.sub(login, text))
        return _SSH.sub(
            lambda m: f"{m.group(1)}{self._name('user', m.group(2))}@{self._name('host', m.group(3))}", text
        )

    def _named_users(self, text: str) -> str:
        def named(match: re.Match[str]) -> str:
            for suffix in ("", "2", "3", "4", "5", "6"):
                value = match.group("value" + suffix)
                if value is not None:
                    if value.lower() in _NOBODY:
                        return match.group()
                    self._learn_user(value)
                    return str(match.group("name" + suffix)) + self._name("user", value)
            return match.group()

        return _NAMED_USER.sub(named, text)

    def _host(self, match: re.Match[str]) -> str:
        lead, name = match.group("lead"), match.group("host")
        if self._public(name):
            return match.group()
        self._learn_host(name)
        return str(lead) + self._name("host", name)

    def _system_lines(self, text: str) -> str:
        return _UNAME.sub(self._host, _SYSLOG.sub(self._host, text))

    def _named_hosts(self, text: str) -> str:
        def named(match: re.Match[str]) -> str:
            name = next(match.group(group) for group in ("host", "host2", "host3") if match.group(group) is not None)
            if self._public(name):
                return match.group()
            self._learn_host(name)
            whole, base = match.group(), match.start()
            start = (
                next(match.start(group) for group in ("host", "host2", "host3") if match.group(group) is not None)
                - base
            )
            return whole[:start] + self._name("host", name) + whole[start + len(name) :]

        return _NAMED_HOST.sub(named, text)

    def _url_hosts(self, text: str) -> str:
        return _URL_HOST.sub(self._host, text)

    def _host_options(self, text: str) -> str:
        return _HOST_OPTION.sub(self._host, text) if "--" in text or "-h" in text else text

    def _listings(self, text: str) -> str:
        def user(name: str) -> str:
            if name.lower() in _NOBODY:
                return name
            self._learn_user(name)
            return self._name("user", name)

        text = _LISTED.sub(
            lambda m: m.group("lead") + user(m.group("user")) + m.group("gap") + user(m.group("group")), text
        )
        return _PROCESS.sub(lambda m: user(m.group("user")), text)

    def _shares(self, text: str) -> str:
        text = _SHARED.sub(self._perhaps_user, _UNC.sub(self._host, text)) if "\\\\" in text else text
        if text.count("//") > text.count("://"):
            text = _SLASHES.sub(self._host, text)
        return _MOUNT.sub(self._host, text) if any(place in text for place in _MOUNTED) else text

    def _networks(self, text: str) -> str:
        return _SSID.sub(lambda m: m.group("lead") + self._name("host", m.group("host")), text)

    def _internal_hosts(self, text: str) -> str:
        def alone(match: re.Match[str]) -> str:
            if match.group().lower() in _LOCAL_HOSTS:
                return match.group()
            self._learn_host(match.group())
            return self._name("host", match.group())

        return _MACHINE.sub(alone, _INTERNAL.sub(alone, text))

    def _public(self, name: str) -> bool:
        if name.lower() in _LOCAL_HOSTS | _NOBODY or name.isdigit() or _PUBLIC_HOSTS.fullmatch(name):
            return True
        # Addresses are taken by their own shape; a number with dots here is a version.
        return bool(re.fullmatch(r"[\d.]+", name))

    def _identifiers(self, text: str) -> str:
        text = _UUID.sub(lambda m: self._name("uuid", m.group()), text)
        text = _SID.sub(lambda m: self._name("user", m.group()), text)
        return _MAC.sub(lambda m: self._name("mac", m.group()), text)

    def _serials(self, text: str) -> str:
        return _SERIAL.sub(
            lambda m: (
                m.group() if m.group("value").isalpha() else m.group("name") + self._name("serial", m.group("value"))
            ),
            text,
        )

    def _ips(self, text: str) -> str:
        return _IP4.sub(self._ip4, _IP6.sub(self._ip6, text))

    def _ip4(self, match: re.Match[str]) -> str:
        address = match.group()
        before = match.string[max(0, match.start() - 16) : match.start()]
        if (
            address.startswith(("127.", "0."))
            or address == "255.255.255.255"
            or (_VERSION_BEFORE.search(before) and not before.endswith(">@"))
        ):
            return address
        return self._name("ip", address)

    def _ip6(self, match: re.Match[str]) -> str:
        with contextlib.suppress(ValueError):
            address = ipaddress.IPv6Address(match.group().partition("%")[0])
            if not address.is_loopback and not address.is_unspecified:
                return self._name("ip", match.group())
        return match.group()

    def _names_again(self, text: str) -> str:
        names = [name for name in (*self._users, *self._hosts) if name in text]
        if not names:
            return text
        names.sort(key=len, reverse=True)
        again = re.compile(rf"(?<![A-Za-z0-9<])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])")
        return again.sub(lambda m: self._name("user" if m.group() in self._users else "host", m.group()), text)


# Signs ---------------------------------------------------------------------------------------------------------------

_SEPARATED = r"(?:[a-z가-힣]{0,8}[-_ ]?(?:id|key|url|string|phrase|word|wd|s)?)?[\"'`)]{0,2}\s{0,3}(?:[:=]|=>|is\b|was\b|은|는|(?<=[\"'`]),|(?<=[\"'`]\s),)"
_TOKEN_OF = (
    "access",
    "refresh",
    "bearer",
    "session",
    "auth",
    "ation",
    "security",
    "personal",
    "github",
    "id",
    "hub",
    "hf",
    "bot",
    "csrf",
    "xsrf",
    "gitlab",
)
_SECRET_SIGNS = (
    "secret_key_base", "key", "secret", rf"token(?!s)(?:(?<=[-_]token)|{'|'.join(rf'(?<={name}.token)|(?<={name}token)' for name in _TOKEN_OF)})",
    "pass", "pwd", "credential", "cookie", "session", "authorization", "webhook", "connection", "비밀번호", "비번", "패스워드", "암호", "토큰",
    "키",
)  # fmt: skip
_PROMPT_SIGNS = (
    "prompt", "content", "message", "input", "text", "system", "instruction", "query", "question", "completion", "response", "answer", "suffix",
)  # fmt: skip
_Reader = Callable[["Redactor", str], str]
# In this order: a key inside an address goes before the address, a home folder before the name in it.
_SIGNS: Final[tuple[tuple[_Reader, tuple[str, ...], tuple[str, ...]], ...]] = (
    (
        Redactor._addresses,
        ("://", "hooks"),
        (r"[?&][a-z0-9_.-]{0,40}(?:key|token|secret|sig|signature|password|passwd|auth|credential|code|session|sid)=",),
    ),
    (Redactor._named_secrets, (), (*(rf"{word}{_SEPARATED}" for word in _SECRET_SIGNS), r"(?:pass\w{0,6}|key|token) (?:for|of) ")),
    (Redactor._variables, ("_key", "_token", "_secret", "_pass", "_pat", "_credential"), ()),
    (Redactor._logins, ("-u ", "-user"), ()),
    (Redactor._bare_tokens, (), (r"token[\"']?\s{0,3}[:=]\s{0,3}[\"']?[a-z0-9._~+/=-]{12}", r"key[\"']?\s{0,3}[:=]\s{0,3}[\"']?[a-z0-9._~+/=-]{12}",
        r"(?:key|token) is:? ")),
    (Redactor._options, ("-api", "-admin", "-hf", "-pass", "-token", "-auth", "-secret", "-ssl-key", "-access", "-bearer"), ()),
    (Redactor._schemes, ("bearer ", "basic ", "digest ", "authtoken ", "kakaoak "), ()),
    (
        Redactor._known_keys,
        (
            "sk-", "_live_", "_test_", "whsec_", "hf_", "gsk_", "xai-", "github_pat_", "aiza", "ya00.", "0//0", "gocspx-", "xapp-", "nvapi-", "r0_",
            "sg.", "npm_", "pypi-", "_v0_", "key-", "fw_", "pplx-", "jina_", "tvly-", "lsv0_", "lin_api_", "dckr_pat_", "hvs.", "dapi", "sq0", "ntn_",
            "secret_", "eaa", "age-secret", "tskey-", "eyj", "aaaa", "rpa_", "sl.", "sbp_", "vcp_", "pk-lf", "hrku-", "figd_", "atatt",
        ),
        (
            r"xox[a-z]-", r":[a-z0-9_-]{34}", r"gh[pousr]_", r"gl[a-z]{2,5}-", r"shp[a-z]{2}_", r"cf(?:ut|at)_",
                r"sntry[su]_", r"pat[a-z0-9]{14}\.", r"a(?:kia|sia|roa|ida|bia|cca)[a-z0-9]{12}",
        ),
    ),
    (
        Redactor._prompts,
        ("-p ", "-p=", "--prompt", "-sys", "--system", "--in-", "-r ", "--grammar"),
        tuple(rf"{word}s?[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']" for word in _PROMPT_SIGNS),
    ),
    (Redactor._homes, ("home", "users", "documents and settings", "/media/", "/volumes/", "~"), ()),
    (Redactor._mail, ("@", "㉿", "user.name", "author:", "committer:", "-by: "), ()),
    (
        Redactor._named_users,
        ("uid=", "gid=", "logged in as", "as user", "sudo"),
        tuple(rf"{word}[\"']?\s{{0,3}}(?:[:=]|is\b)" for word in ("user", "name", "login", "owner", "author")),
    ),
    (Redactor._system_lines, ("linux ", "darwin ", "freebsd "), (r"(?m)^[a-z]{3}\s+\d{1,2}\s\d\d:", r"(?m)^\d{4}-\d\d-\d\dt\d\d:\d\d:\d\d\S*\s+[a-z]")),
    (Redactor._named_hosts, ("userdomain", "logonserver"), (r"host[\"']?\s{0,3}[:=]", r"name[\"']?\s{0,3}[:=]",
        r"computer[\"']?\s{0,3}[:=]", r"fqdn[\"']?\s{0,3}[:=]")),
    (Redactor._host_options, ("-host", "--rpc", "--server", "-addr", "--node-ip", "--listen", "--bind"), ()),
    (Redactor._listings, ("-rw", "drwx", "lrwx"), (r"\.0\s{1,4}0{1,3}\.0\s",)),
    (Redactor._url_hosts, ("://",), ()),
    (Redactor._shares, ("\\\\", "//", ":/"), ()),
    (Redactor._networks, ("ssid",), ()),
    (Redactor._telephones, (), (r"\+0{1,3}[ -][(0]", r"\(000\) ?000-", r"-0{3,4}-0000")),
    (Redactor._disks, ("/dev/disk/by-",), ()),
    (
        Redactor._internal_hosts,
        (
            ".local", ".lan", ".internal", ".intranet", ".home", ".corp", ".ts.net", ".priv", ".ddns", ".duckdns", ".ngrok",
            ".trycloudflare", "desktop-", "laptop-",
            ".fritz.box", "runpod.net", "vast.ai", ".hf.space", "ip-0",
            "win-", "pc-", "workstation-", "-macbook", "-imac", "-mac-", "-mbp", "-pc", "-laptop", "-desktop", "-thinkpad", "-xps",
        ),
        (),
    ),
    (
        Redactor._identifiers,
        ("s-0-0-00", "gpu-"),
        (r"-[0-9a-f]{4}-[0-9a-f]{4}-", r"-[0-9a-f]{2}-[0-9a-f]{2}-[0-9a-f]{2}-", r":[0-9a-f]{2}:[0-9a-f]{2}:[0-9a-f]{2}:", r"\.[0-9a-f]{4}\.[0-9a-f]{4}"),
    ),
    (Redactor._serials, ("serial", "s/n", "sn:", "sn=", "sn =", "tag", "machine", "uuid", "udid"), ()),
    (Redactor._ips, ("::",), (r":[0-9a-f]{1,4}:[0-9a-f]{1,4}:[0-9a-f]{1,4}:", r"\.\d{1,3}\.\d{1,3}\.\d")),
    (Redactor._runs, (), ()),
)  # fmt: skip
_READERS: Final = tuple((1 << i, reader) for i, (reader, _, _) in enumerate(_SIGNS))
_RUNS_SIGN: Final = 1 << (len(_SIGNS) - 1)


def _gather() -> tuple[tuple[tuple[str, int], ...], tuple[tuple[re.Pattern[str], int], ...]]:
    literals: dict[str, int] = {}
    patterns: dict[str, int] = {}
    for i, (_, plain, shaped) in enumerate(_SIGNS):
        for sign in plain:
            literals[sign] = literals.get(sign, 0) | 1 << i
        for sign in shaped:
            patterns[sign] = patterns.get(sign, 0) | 1 << i
    return tuple(literals.items()), tuple((re.compile(sign), mask) for sign, mask in patterns.items())


_LITERALS, _PATTERNS = _gather()
_FORM: Final = str.maketrans("123456789", "000000000")
_MOST_FORMS: Final = 4_096
_LOWER: Final = str.maketrans({chr(c): chr(c + 32) for c in range(65, 91)})


def _signs(text: str) -> dict[int, int]:
    """Say which lines of a text hold signs of what: line → bits of :data:`_READERS`. A plain search is many times faster than a pattern."""
    lower = text.lower()
    if len(lower) != len(text):
        # Some capital letters are longer when small; places must stay places.
        lower = text.translate(_LOWER)
    starts: list[int] = []
    found: dict[int, int] = {}

    def add(place: int, mask: int) -> int:
        """Note a sign, and give the end of its line."""
        if not starts:
            starts.append(0)
            at = lower.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = lower.find("\n", at + 1)
        line = bisect_right(starts, place) - 1
        found[line] = found.get(line, 0) | mask
        return starts[line + 1] if line + 1 < len(starts) else len(lower)

    for literal, mask in _LITERALS:
        place = lower.find(literal)
        while place >= 0:
            place = lower.find(literal, add(place, mask))
    for pattern, mask in _PATTERNS:
        match = pattern.search(lower)
        while match is not None:
            match = pattern.search(lower, add(match.start(), mask))
    for match in _RUN.finditer(text):
        if _random(match.group()):
            add(match.start(), _RUNS_SIGN)
    return found


_MOUNTED: Final = (":/export", ":/volume", ":/nfs/", ":/srv/")
_FOLDER: Final = re.compile(r"[/~]|[A-Za-z]:[\\/]")
_PLAIN_VALUES: Final = frozenset({
    "none", "null", "true", "false", "yes", "no", "on", "off", "set", "unset", "not", "enabled", "disabled", "required", "missing", "empty", "invalid",
    "correct", "incorrect", "wrong", "protected", "needed", "optional", "expired", "already", "being", "too", "also", "used", "given", "stored",
    "file", "env", "x", "xxx", "hidden", "is", "was", "has", "must", "the", "a", "and", "or", "for", "bearer", "basic", "digest",
})  # fmt: skip
_DIGITS: Final = re.compile(r"[\d.,:%/x+-]+[a-zA-Z]{0,3}")


_MESSAGE: Final = re.compile(r"(?<![a-z])message[\"']?\s*[:=]\s*$", re.IGNORECASE)
_TALK: Final = re.compile(r"role|user|assistant|prompt[\"']?\s*[:=]|chat|conversation", re.IGNORECASE)


def _line_at(match: re.Match[str]) -> tuple[int, int]:
    """Give where the line of a match begins, and where its value does."""
    start = max(match.string.rfind("\n", 0, match.start()), match.string.rfind("\x00", 0, match.start())) + 1
    return start, match.start("value")


def _harmless(value: str) -> bool:
    return (
        value.lower().strip(".*") in _PLAIN_VALUES or set(value) <= set("*x.…-_") or value.startswith(("$", "%", "{"))
    )


def _mixed(value: str) -> bool:
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value) and not _DIGITS.fullmatch(value)


def _random(run: str) -> bool:
    """Say whether a run of characters is one that nobody chose as a name: letters and digits change often, in one long piece."""
    kinds = run.translate(_KINDS)
    if ("d" not in kinds and "u" not in kinds) or run.startswith("_Z"):
        # A mangled name of C++ mixes everything, and says which kernel failed.
        return False
    if sum(not _HEX.fullmatch(part) for part in _LOWER_RUN.findall(run)) >= 2 and "-" not in run:
        # Words put together, as names of classes and kernels are; no key holds two words.
        return False
    turns = len(_SAME.findall(kinds)) - 1
    if turns < 5:
        return bool(_LONG_HEX.search(run))
    for piece in _PIECE.finditer(kinds):
        part = piece.group()
        size = len(part)
        digits, upper, lower = part.count("d"), part.count("u"), part.count("l")
        if _HEX.fullmatch(run, piece.start(), piece.end()):
            if size >= 32 and digits >= 4 and upper + lower >= 4:
                return True
            continue
        turns = len(_SAME.findall(part)) - 1
        if upper >= 4 and lower >= 4 and turns >= size / 2:
            return True
        if digits >= 2 and upper >= 2 and lower >= 2 and turns >= size / 4:
            return True
        if size >= 20 and digits >= 4 and (upper >= 4 or lower >= 4) and turns >= size / 4:
            return True
    # Base64 has its plus and slash anywhere: judged whole, where the pieces are no words.
    if len(run) >= 32 and "s" in kinds:
        joined = kinds.replace("s", "")
        turns = len(_SAME.findall(joined)) - 1
        digits, upper, lower = joined.count("d"), joined.count("u"), joined.count("l")
        if turns >= len(joined) / 2.6 and digits >= 3 and upper >= 4 and lower >= 4:
            return True
        # The secret half of a key pair of a well-known cloud has 40 of these characters, whatever they are.
        return bool(_FORTY.fullmatch(run)) and turns >= 10 and upper >= 5 and lower >= 5
    return False


_FORTY: Final = re.compile(r"[A-Za-z0-9/+]{40}")
_KINDS: Final = str.maketrans(
    {
        chr(c): "d" if chr(c).isdigit() else "u" if chr(c).isupper() else "l" if chr(c).islower() else "s"
        for c in range(33, 127)
    }
)
_LOWER_RUN: Final = re.compile(r"[a-z]{5,}")
_SAME: Final = re.compile(r"d+|u+|l+|s+")
_PIECE: Final = re.compile(r"[dul]{16,}")
_LONG_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{32,}(?![0-9A-Za-z])")


# Documents -----------------------------------------------------------------------------------------------------------

_APART: Final = "\n\x00\n"
_KEPT: Final = frozenset(
    {
        "header_hash",
        "prompt_hash",
        "hash",
        "schema_version",
        "at",
        "created",
        "fixed_at",
        "kind",
        "id",
        "family",
        "band",
        "truth",
        "run",
    }
)
_PROMPT_KEYS: Final = frozenset({"text", "prompt", "messages", "content"})
_SECRET_KEYS: Final = re.compile(r"(?:api_?key|password|secret|(?:access|auth|hf)_?token)", re.IGNORECASE)
_SERIAL_KEYS: Final = frozenset({"serial", "uuid", "serial_number"})
_USER_KEYS: Final = frozenset({"user", "username"})
_HOST_KEYS: Final = frozenset({"host", "hostname"})
_SAFE_ID: Final = re.compile(r"[a-z0-9][a-z0-9._:-]{0,63}")
_SAFE_HASH: Final = re.compile(r"[0-9a-f]{1,128}")


def redact_document(document: CaseDocument, redactor: Redactor | None = None) -> tuple[CaseDocument, tuple[Words, ...]]:
    """Give the document without what is private, and what was left out.

    All its texts are looked at together, so that a name learned in one is taken out of all.
    """
    redactor = redactor or Redactor()
    whole = document.model_dump(mode="json", by_alias=True)
    texts: list[str] = []

    def gather(_key: str, text: str) -> str:
        texts.append(text)
        return text

    counted = redactor.found.copy()
    _walk(whole, "", gather, redactor, kinds="")
    redactor.found = counted  # what stands in fields of its own is counted when it is put
    # Twice: names are learned at the first pass, and may stand before the place that teaches them.
    joined = _APART.join(text.replace("\x00", "␀") for text in texts)
    cleaned = _both_passes(redactor, joined).split(_APART)
    if len(cleaned) != len(texts):
        # A placeholder swallowed a border, which no pattern may do: one by one, then.
        cleaned = [redactor.text(text) for text in texts]
    places = iter(cleaned)
    clean = _walk(whole, "", lambda _key, _text: next(places), redactor, kinds="")
    return type(document).model_validate(clean), redactor.left_out()


def _both_passes(redactor: Redactor, text: str) -> str:
    first = redactor.text(text)
    return redactor._names_again(first)


def _walk(value: Any, key: str, put: Callable[[str, str], str], redactor: Redactor, *, kinds: str) -> Any:
    if isinstance(value, str):
        if (key in _KEPT and _SAFE_ID.fullmatch(value)) or (key.endswith("hash") and _SAFE_HASH.fullmatch(value)):
            return value
        if not value or (len(value) <= 24 and value.isascii() and value.islower() and value.isalpha()):
            # A short word; names that are known by then are still taken out of it. It is not among the texts: both walks see the same ones.
            return redactor._names_again(value)
        return put(key, value)
    if isinstance(value, dict):
        kind = str(value.get("kind", kinds)) if "data" in value else kinds
        out = {}
        for name, item in value.items():
            if isinstance(item, str) and item and not item.startswith("<"):
                special = _special(redactor, name, item, kind)
                if special is not None:
                    out[name] = special
                    continue
            out[name] = _walk(item, name, put, redactor, kinds=kind)
        return out
    if isinstance(value, list):
        if key == "command" and value and all(isinstance(v, str) for v in value):
            return _argv(value, put, redactor)
        return [_walk(item, key, put, redactor, kinds=kinds) for item in value]
    return value


def _special(redactor: Redactor, name: str, item: str, kind: str) -> str | None:
    """Replace a value whose name alone says that it is private; None where the text has to be read."""
    if _SECRET_KEYS.search(name):
        return redactor._name("key", item)
    if name in _SERIAL_KEYS:
        return redactor._name("uuid" if name == "uuid" else "serial", item)
    if kind == "completion" and name in _PROMPT_KEYS:
        return redactor._prompt(item)
    if name in _USER_KEYS and item.lower() not in _NOBODY:
        redactor._learn_user(item)
        return redactor._name("user", item)
    if name in _HOST_KEYS and item.lower() not in _LOCAL_HOSTS:
        redactor._learn_host(item)
        return redactor._name("host", item)
    return None


_ARGV_SECRET: Final = re.compile(
    r"--?(?:api[-_]?keys?|admin[-_]?key|hf[-_]?token|hft|password|token|auth[-_]?token|secret|access[-_]?token)",
    re.IGNORECASE,
)
_ARGV_HOSTS: Final = frozenset(
    {
        "--host",
        "--hostname",
        "--rpc",
        "--server",
        "--listen",
        "--bind",
        "--node-ip",
        "--master-addr",
        "--dist-init-addr",
    }
)
_ARGV_PROMPT: Final = frozenset(
    {"-p", "--prompt", "-sys", "--system-prompt", "-r", "--reverse-prompt", "--in-prefix", "--in-suffix"}
)


def _argv(argv: list[str], put: Callable[[str, str], str], redactor: Redactor) -> list[str]:
    """A command line word by word: an option's value is the next word."""
    out: list[str] = []
    before = ""
    for word in argv:
        if _ARGV_SECRET.fullmatch(before):
            out.append(redactor._name("key", word))
        elif before in _ARGV_HOSTS:
            out.append(redactor.text(f"{before} {word}").partition(" ")[2])
        elif before in _ARGV_PROMPT:
            out.append(redactor._prompt(word))
        else:
            out.append(put("command", word))
        before = word
    return out
