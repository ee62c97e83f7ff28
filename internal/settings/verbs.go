//go:build verbs

package settings

// HasVerbs reports whether this program was built with the fabric Verbs.
const HasVerbs = true
