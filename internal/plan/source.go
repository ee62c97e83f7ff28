package plan

// Source says where a number comes from.
type Source string

// Sources.
const (
	FromSim       Source = "sim"         // a simulation of the whole network and model
	FromScaledSim Source = "sim, scaled" // scaled up from a smaller simulation
	FromGraph     Source = "graph"       // counted on the graph of the network
)

// Number is a value with its source.
type Number struct {
	Value  float64 `json:"value"`
	Source Source  `json:"source"`
}
