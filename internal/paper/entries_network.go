package paper

import "time"

// inLab says what the entries with a part in the lab need. They do the other parts without it.
const inLab = "root, for a lab"

// networkEntries are the entries that need the simulator or the lab.
var networkEntries = []Entry{
	{ID: "fig2", Quick: 2 * time.Second, Full: 2 * time.Second, Run: figure2},
	{ID: "C1", Quick: time.Second, Full: time.Second, Run: linkTraffic},
	{ID: "C3", Quick: 2 * time.Second, Full: 2 * time.Second, Run: oncePerLink},
	{ID: "fig3", Quick: 5 * time.Second, Full: time.Minute, Run: boundary},
	{ID: "C2", Quick: 10 * time.Second, Full: 10 * time.Second, Needs: inLab, Run: concurrentPair},
	{ID: "fig10", Quick: 5 * time.Second, Full: 20 * time.Second, Run: figure10},
	{ID: "C7", Quick: time.Second, Full: time.Second, Run: dataMovement},
	{ID: "fig11", Quick: 30 * time.Second, Full: 3 * time.Minute, Run: figure11},
	{ID: "C8", Quick: time.Second, Full: time.Second, Run: beside},
	{ID: "C9", Quick: 20 * time.Second, Full: 8 * time.Minute, Run: runToRun},
	{ID: "fig12", Quick: 20 * time.Second, Full: time.Minute, Needs: inLab, Run: figure12},
	{ID: "C10", Quick: time.Second, Full: time.Second, Needs: inLab, Run: switchPorts},
	{ID: "appB", Quick: time.Second, Full: time.Second, Needs: inLab, Run: speedupByRanks},
}
