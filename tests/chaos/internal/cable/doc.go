// Package cable joins a service's network namespace with one in which servers listen, by a cable
// whose faults can change at any time: packets are delayed, lost, late, or cut off in one direction
// or both, for all servers or for one, without an error to either side; or the present connections
// cease to work while new ones do.
//
// In each namespace the cable is a TUN device; this package reads what one kernel sends and writes
// it to the other side's device. So it needs no feature of the kernel except /dev/net/tun, in
// particular not the queueing discipline netem, which many kernels lack. A TUN device has no
// Ethernet layer and offloads no checksums: packets are complete when they are read.
//
// Which packets are lost or late is drawn from the seed, in the order of the packets. The packets
// are those of real programs in real time: a seed repeats the faults, but not the packets that meet
// them.
package cable
