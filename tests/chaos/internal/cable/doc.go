// Package cable joins a network namespace with one in which servers listen, by a cable that can be made bad while it is in
// use: packets are delayed, lost, late, or cut off in one direction or both, for all servers or for one, without a word to
// either side; or the connections that there are cease to work, and new ones do.
//
// In each namespace it is a TUN device; what one side's kernel sends is read here and written to the other side's. So it needs
// nothing of the kernel but /dev/net/tun, in particular not the queueing discipline netem, which many kernels are built
// without. A TUN device has no Ethernet and nobody to compute checksums for it: packets are whole as they are read.
//
// Which packet is lost and which is late is drawn from the seed, one draw after the other in the order of the packets. The
// packets are those of real programs and come in real time: a seed repeats how bad the cable is, not what is on it.
package cable
