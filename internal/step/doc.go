// Package step is the vocabulary of the sans-IO contract. A driver (the engine or the simulator)
// tells a state machine what happened with an [Event] and the [Time] at which it happened. The state
// machine answers with a list of [Action] values, which the driver carries out in order. Package
// step also names the [Phase] and the counters ([Stats]) that drivers show to people. It holds data,
// no behaviour.
package step
