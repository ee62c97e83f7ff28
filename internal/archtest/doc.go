// Package archtest holds the rules of the architecture that neither the compiler
// nor the linter can check: the table of layers, the import graph it applies to,
// and tests of the source.
package archtest
