// Package archtest holds tests of the architecture itself: rules about the
// source that the compiler does not know and the linter cannot express.
package archtest
