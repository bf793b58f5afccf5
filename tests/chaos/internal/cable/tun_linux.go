package cable

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// open makes a TUN device in the namespace of this thread. It is gone when the file is closed.
func open(name string) (*os.File, error) {
	const path = "/dev/net/tun"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI) // packets and nothing around them
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was done with it
		return nil, fmt.Errorf("make TUN device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil // waits for packets as for anything else: it does not block
}
