#!/bin/sh
# rpcgen_codec.sh RPCGEN -h|-c FILE.x: rpcgen's header or codec on standard output. The header does not include
# libtirpc's, the codec does so itself: see oracle.h. rpcgen names the header after the path it was given.
set -eu
case "$2" in
-h) "$1" -DNLM_TYPES_ONLY -h "$3" | sed '/^#include <rpc/d' ;;
-c) "$1" -DNLM_TYPES_ONLY -c "$3" | sed 's|^#include ".*\.h"|#include <rpc/rpc.h>\n#include "nlm_oracle.h"|' ;;
esac
