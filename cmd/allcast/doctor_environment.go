package main

import (
	"fmt"

	"github.com/allcast/allcast/internal/settings"
)

// environmentFindings are about the variables that a rank reads. The key's value is
// nobody's business.
func environmentFindings() []finding {
	return []finding{rankFinding(), keyFinding()}
}

func rankFinding() finding {
	const check = "rank variables"
	env, found, err := settings.FromLauncher(settings.Process)
	switch {
	case err != nil:
		return finding{check, findingWarn, err.Error(), "set all variables of one launcher, or none: torchrun, mpirun, srun and \"allcast run\" do"}
	case !found:
		return finding{check, findingOK, "none: perf starts local ranks", ""}
	}
	return finding{check, findingOK, fmt.Sprintf("rank %d of %d (%s), rank 0 at %s", env.Rank, env.Size, env.Launcher, env.Addr), ""}
}

func keyFinding() finding {
	const check = "job key"
	key, err := settings.Key(settings.Process)
	switch {
	case err != nil:
		return finding{check, findingWarn, err.Error(), "the same 32 or more hex digits on all ranks: openssl rand -hex 32"}
	case key == nil:
		return finding{
			check, findingMissing, "no ALLCAST_KEY: off loopback, a job is open to whoever can reach it",
			"export ALLCAST_KEY=$(openssl rand -hex 32), the same on all ranks; \"allcast run\" makes one",
		}
	}
	return finding{check, findingOK, "set", ""}
}
