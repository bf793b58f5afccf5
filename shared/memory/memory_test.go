package memory

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLimitIsTheContainers(t *testing.T) {
	for name, test := range map[string]struct {
		v2, v1 string
		want   int64
	}{
		"half a GiB":               {"536870912\n", "", 512 << 20},
		"none":                     {"max\n", "", 0},
		"version 1":                {"", "1073741824\n", 1 << 30},
		"none, in version 1":       {"", "9223372036854771712\n", 0},
		"no control group":         {"", "", 0},
		"version 2 before 1":       {"1000\n", "2000\n", 1000},
		"an unreadable value":      {"much\n", "", 0},
		"none in 2, whatever in 1": {"max\n", "2000\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"v2": test.v2, "v1": test.v1}
			require.Equal(t, test.want, limit([]string{"v2", "v1"}, func(name string) ([]byte, error) {
				if files[name] == "" {
					return nil, errors.New("no such file")
				}
				return []byte(files[name]), nil
			}))
		})
	}
}
