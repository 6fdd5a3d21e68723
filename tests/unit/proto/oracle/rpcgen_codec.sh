#!/bin/sh
# rpcgen_codec.sh RPCGEN -h|-c FILE.x HEADER: rpcgen's header, or its codec, which includes HEADER, on standard output.
# What both want of libtirpc comes through oracle.h. rpcgen names the header after the path it was given.
set -eu
case "$2" in
-h) "$1" -DTYPES_ONLY -h "$3" | sed 's|^#include <rpc/rpc.h>|#include "oracle.h"|' ;;
-c) "$1" -DTYPES_ONLY -c "$3" | sed "s|^#include \".*\.h\"|#include \"$4\"|" ;;
esac
