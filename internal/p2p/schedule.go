package p2p

// Schedule returns the plan of one rank for a schedule that is none of the algorithms here, such as one of another
// library. The spec must be that of a Broadcast. The digest covers the name and the spec, not the schedule itself.
func Schedule(name string, s Spec, sends []Send, recvs []Recv) (*Plan, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	b := newBuild(name, s)
	b.plan.Sends, b.plan.Recvs = sends, recvs
	b.plan.contacts()
	b.plan.ownership()
	return b.plan, nil
}
