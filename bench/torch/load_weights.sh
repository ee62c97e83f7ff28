#!/bin/sh
# Compares load_state_dict with a plain Broadcast of as many bytes, on eight hosts of the lab. It needs
# root, 10 GiB of memory, and an otherwise idle machine. PYTHON is an interpreter with torch and
# safetensors; arguments go to load_weights.py.
set -eu
cd "$(dirname "$0")/../.."
make -s lib
go build -o bin/allcast ./cmd/allcast
export ALLCAST_LIBRARY="$PWD/bin/lib/liballcast.so" PYTHONPATH="$PWD/bindings/python/src"
exec bin/allcast lab run --topology star:8 --name "${LAB:-acl}" -- \
	"${PYTHON:-python3}" bench/torch/load_weights.py "$@"
