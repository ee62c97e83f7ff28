package doctor

import (
	"fmt"
	"os"

	"github.com/allcast/allcast/internal/settings"
)

// environmentFindings check the variables that a rank reads. They never show the value of the key.
func environmentFindings() []finding {
	findings := []finding{rankFinding(), keyFinding()}
	for _, w := range settings.UnknownVariables(os.Environ()) {
		findings = append(findings, warn("variables", w, "correct its name, or unset it"))
	}
	return findings
}

func rankFinding() finding {
	const check = "rank variables"
	env, found, err := settings.FromLauncher(settings.Process)
	switch {
	case err != nil:
		return warn(check, err.Error(),
			"set all variables of one launcher, or none; torchrun, mpirun, srun and \"allcast run\" set them")
	case !found:
		return ok(check, "none: perf starts local ranks")
	}
	return ok(check, fmt.Sprintf("rank %d of %d (%s), rank 0 at %s", env.Rank, env.Size, env.Launcher, env.Addr))
}

func keyFinding() finding {
	const check = "job key"
	key, err := settings.Key(settings.Process)
	switch {
	case err != nil:
		return warn(check, err.Error(), "set 32 or more hex digits, the same on all ranks: openssl rand -hex 32")
	case key == nil:
		return missing(check, "no ALLCAST_KEY: except on loopback, anyone who can reach a job can join it",
			"export ALLCAST_KEY=$(openssl rand -hex 32), the same on all ranks; \"allcast run\" creates one")
	}
	return ok(check, "set")
}
