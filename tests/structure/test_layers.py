#!/usr/bin/env python3
"""The layers of docs/architecture.md, kept true: includes in src/ point down, never up.

    test_layers.py SRC
"""
import pathlib
import re
import sys

# Highest first; folders in one row may know each other.
ROWS = [
    {"daemon"},
    {"api", "proto"},
    {"recovery"},
    {"lock", "client", "export", "vfs", "cluster"},
    {"store", "rpc"},
    {"tls"},
    {"loop"},
    {"base"},
]
LEVEL = {folder: i for i, row in enumerate(ROWS) for folder in row}
# Only the folders that speak to the network know how calls travel.
MAY_INCLUDE_RPC = {"rpc", "proto", "daemon"}
# libuv is the loop's own business, so that a simulation can take its place.
UV_ONLY_IN = "loop"
# One folder answers for how OpenSSL is used.
OPENSSL_ONLY_IN = "tls"
# libmicrohttpd speaks TLS with GnuTLS; two files answer for that.
GNUTLS_ONLY_IN = {"api/https.c", "api/keys.c", "api/keys_internal.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
SYSTEM = re.compile(r"^\s*#\s*include\s+<([^>]+)>", re.M)


def faults(src):
    for path in sorted(src.rglob("*.[ch]")):
        folder = path.relative_to(src).parts[0]
        text = path.read_text()
        if folder not in LEVEL:
            yield f"{path}: {folder}/ is in no layer; add it to ROWS and to docs/architecture.md"
            continue
        for name in INCLUDE.findall(text):
            target = name.split("/")[0]
            if "/" not in name:
                yield f"{path}: includes \"{name}\"; write it from src/ on, as in \"base/list.h\""
            elif target not in LEVEL:
                yield f"{path}: includes \"{name}\", which is in no layer"
            elif LEVEL[target] < LEVEL[folder]:
                yield f"{path}: {folder}/ includes \"{name}\", which is above it"
            elif target == "rpc" and folder not in MAY_INCLUDE_RPC:
                yield f"{path}: {folder}/ includes \"{name}\"; only {sorted(MAY_INCLUDE_RPC)} may"
        if "uv.h" in SYSTEM.findall(text) and folder != UV_ONLY_IN:
            yield f"{path}: includes <uv.h>; only {UV_ONLY_IN}/ may"
        if any(name.startswith("openssl/") for name in SYSTEM.findall(text)) and folder != OPENSSL_ONLY_IN:
            yield f"{path}: includes OpenSSL; only {OPENSSL_ONLY_IN}/ may"
        if any(name.startswith("gnutls/") for name in SYSTEM.findall(text)) and str(path.relative_to(src)) not in GNUTLS_ONLY_IN:
            yield f"{path}: includes GnuTLS; only {sorted(GNUTLS_ONLY_IN)} may"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "every include points down")
    return 1 if found else 0


sys.exit(main())
