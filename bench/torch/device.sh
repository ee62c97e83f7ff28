#!/usr/bin/env bash
# Verifies and measures the torch backend on a machine with a GPU, which all ranks share:
#
#     make lib && OUT=/tmp/gpu bench/torch/device.sh [check|bench|sweep|all]
#
# It needs python3 with torch. ALLCAST_LIBRARY names the library, bin/lib/liballcast.so by default. The files in OUT
# are log.txt, and one JSON file per benchmark. On an H200 with 16 cores, check takes about 2 minutes, bench and sweep
# one and a half each.
set -uo pipefail
cd "$(dirname "$0")/../.."
what=${1:-all}
out=${OUT:-/tmp/allcast-gpu}
python=${PYTHON:-python3}
mkdir -p "$out"
export PYTHONPATH=$PWD/bindings/python/src:$PWD/bindings/python/tests_torch PYTHONUNBUFFERED=1
export ALLCAST_LIBRARY=${ALLCAST_LIBRARY:-$PWD/bin/lib/liballcast.so}
port=29700
failed=0

# Runs a program on 4 ranks for at most the given number of seconds, with settings from the environment.
ranks() {
	local limit=$1
	shift
	port=$((port + 10))
	echo "== $* (at $(date +%T), wait ${ALLCAST_TORCH_STREAM_WAIT:-auto}, piece ${ALLCAST_TORCH_PIECE:-default})"
	OMP_NUM_THREADS=2 timeout -k 5 "$limit" \
		"$python" -m torch.distributed.run --nproc_per_node 4 --master_port $port "$@" 2>&1 |
		grep -v -e OMP_NUM_THREADS -e '^W1' -e '^E1' -e '^  ' -e '^\[rank[1-9]\]:   '
	local code=${PIPESTATUS[0]}
	[ "$code" = 0 ] || { echo "failed with exit code $code: $*"; failed=1; }
}

check() {
	ranks 90 bindings/python/tests_torch/device_operations.py --device cuda
	ALLCAST_TORCH_STREAM_WAIT=value ranks 90 bindings/python/tests_torch/device_operations.py --device cuda
	ALLCAST_TORCH_STREAM_WAIT=value ALLCAST_TORCH_PIECE=1048576 \
		ranks 90 bindings/python/tests_torch/device_operations.py --device cuda
	ranks 60 bindings/python/tests_torch/device_failure.py --device cuda
	ALLCAST_TORCH_STREAM_WAIT=value ranks 60 bindings/python/tests_torch/device_failure.py --device cuda
	ranks 120 bindings/python/tests_torch/device_fsdp2.py --device cuda
	ALLCAST_TORCH_STREAM_WAIT=value ranks 120 bindings/python/tests_torch/device_fsdp2.py --device cuda
}

bench() {
	ranks 120 bench/torch/fsdp2.py --device cuda --json "$out/cuda.json"
	ranks 120 bench/torch/fsdp2.py --device cpu --json "$out/cpu.json"
}

# Compares the ways to wait, and sizes of pieces.
sweep() {
	local short=(--device cuda --mib 4 16 --pairs 5 --steps 3)
	ALLCAST_TORCH_STREAM_WAIT=value ranks 60 bench/torch/fsdp2.py "${short[@]}" --json "$out/value.json"
	for piece in 2 4 32; do
		ALLCAST_TORCH_PIECE=$((piece << 20)) ranks 60 bench/torch/fsdp2.py "${short[@]}" \
			--json "$out/piece-$piece.json"
	done
}

{
	"$python" -c 'import torch, platform; print("torch", torch.__version__, "Python", platform.python_version(),
		torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no CUDA device")'
	nproc
	case $what in
	check | bench | sweep) $what ;;
	all)
		bench
		check
		sweep
		;;
	*)
		echo "unknown part $what: want check, bench, sweep or all"
		failed=1
		;;
	esac
	[ $failed = 0 ] && echo "all passed" || echo "some failed"
	exit $failed
} 2>&1 | tee "$out/log.txt"
