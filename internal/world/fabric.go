package world

// Fabrics.
const (
	IP    = "ip"    // UDP multicast and TCP
	Verbs = "verbs" // InfiniBand and RoCE, if HasVerbs
)

// BuildVerbs says how to get a program that has Verbs.
const BuildVerbs = "this program was built without it: build it with \"go build -tags verbs\" (that needs a C compiler and the headers of libibverbs and librdmacm)"
