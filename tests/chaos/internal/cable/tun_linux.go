package cable

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// open creates a TUN device in the namespace of this thread. The device disappears when the file is
// closed.
func open(name string) (*os.File, error) {
	const path = "/dev/net/tun"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI) // bare packets without a header
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd) // it was not used
		return nil, fmt.Errorf("create TUN device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil // the runtime polls it, because it does not block
}
