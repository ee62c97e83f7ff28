#!/usr/bin/env bash
# Runs mpi4py's own test suite on 4 ranks under each MPI that is installed, without and with liballcast_mpi.so, and
# compares which tests pass. It needs PyPI once. Tests of spawned processes are left out: they have MPI_COMM_WORLDs of
# their own, and oversubscribe the machine.
#
#   mpi4py.sh LIB TOOLS    LIB: directory with liballcast.so; TOOLS: directory for virtual environments
set -euo pipefail
lib=$(realpath "$1")
tools=$2
version=4.1.1
mkdir -p "$tools"
tools=$(realpath "$tools")
export ALLCAST_MPI=stats ALLCAST_MPI_THRESHOLD=0 ALLCAST_CALIBRATE=off
found=

# install NAME: builds mpi4py with this MPI, and unpacks its tests.
install() {
	local dir=$tools/mpi4py-$version-$1
	if [ ! -e "$dir/complete" ]; then
		python3 -m venv --clear "$dir"
		MPICC=mpicc.$1 "$dir/bin/pip" install --quiet --no-binary mpi4py numpy "mpi4py==$version"
		"$dir/bin/pip" download --quiet --no-deps --no-binary mpi4py -d "$dir" "mpi4py==$version"
		tar -xf "$dir/mpi4py-$version.tar.gz" -C "$dir"
		touch "$dir/complete"
	fi
}

# suite NAME with|without LOG: runs the suite, and prints its summary.
suite() {
	local dir=$tools/mpi4py-$version-$1 preload=$lib/$1/liballcast_mpi.so
	local job=("$dir/bin/python" "$dir/mpi4py-$version/test/main.py" -v -e spawn -e dynproc)
	local launch=(mpiexec.hydra -n 4)
	[ "$2" = without ] || launch+=(-genv LD_PRELOAD "$preload")
	if [ "$1" = openmpi ]; then
		launch=(mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none --mca btl self,vader
			--mca oob_tcp_if_include lo --mca mpi_yield_when_idle 1 -n 4)
		[ "$2" = without ] || launch+=(-x "LD_PRELOAD=$preload")
	fi
	"${launch[@]}" "${job[@]}" >"$3" 2>&1 || { tail -n 40 "$3"; return 1; }
	grep -E '^(OK|FAILED)' "$3" | sort | uniq -c | sed "s/^/$1 $2: ranks with this result:/"
	grep -E '^Ran [0-9]+ tests' "$3" | sed 's/ in .*//' | sort -u
}

for name in openmpi mpich; do
	if ! command -v "mpicc.$name" >/dev/null; then
		echo "skipped: mpicc.$name is not installed"
		continue
	fi
	found=1
	install "$name"
	logs=$(mktemp -d)
	suite "$name" without "$logs/without" | tee "$logs/a" | sed "s/^/without: /"
	suite "$name" with "$logs/with" | tee "$logs/b" | sed "s/^/with: /"
	grep -A 12 '^allcast: MPI calls' "$logs/with" || true
	if ! diff <(sed 's/ with.*:/:/; s/ without.*:/:/' "$logs/a") <(sed 's/ with.*:/:/; s/ without.*:/:/' "$logs/b"); then
		echo "the results of $name differ: see $logs"
		exit 1
	fi
	rm -rf "$logs"
done
[ -n "$found" ] || { echo 'no MPI is installed'; exit 1; }
