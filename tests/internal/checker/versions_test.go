package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

func TestG3JudgeReportsAViewThatGoesBack(t *testing.T) {
	t.Parallel()
	read := func(events int64, versions ...int) checker.Read {
		return checker.Read{Versions: versions, Events: map[string]int64{"a": events}}
	}
	judge := func(v checker.Versions) (found []error) {
		for _, err := range checker.Judge(checker.Run{Versions: &v}) {
			require.ErrorIs(t, err, checker.ErrView)
			found = append(found, err)
		}
		return found
	}
	for name, test := range map[string]struct {
		reads    []checker.Read
		attempts []int
		wrong    string
	}{
		"as it should be":      {[]checker.Read{{}, read(1, 1), read(3, 1), read(4, 1), read(3, 2), read(5, 2)}, []int{3}, ""},
		"two versions at once": {[]checker.Read{read(1, 1), read(1, 1, 2)}, []int{0}, "read 1 contains documents of versions [1 2]"},
		"one version":          {[]checker.Read{read(2, 1), read(1, 1)}, nil, "in read 1 a has 1 events after 2"},
		"nothing":              {[]checker.Read{read(2, 1), {}}, nil, "in read 1 a has 0 events after 2"},
		"the switch":           {[]checker.Read{read(2, 1), read(3, 1), read(2, 2)}, []int{0, 2}, "in read 2 a has 2 events after 3"},
		"a switch that failed": {[]checker.Read{read(2, 1), read(3, 1), read(1, 2)}, []int{1, 3}, "in read 2 a has 1 events after 2"},
		"the version":          {[]checker.Read{read(2, 2), read(2, 1)}, nil, "read 1 is of version 1, behind one of version 2"},
	} {
		found := judge(checker.Versions{Reads: test.reads, Attempts: test.attempts})
		if test.wrong == "" {
			require.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		require.ErrorContains(t, found[0], test.wrong, name)
	}
}

func TestG3JudgeReportsASecondVersionThatIsWrong(t *testing.T) {
	t.Parallel()
	one, two := &history.Model{}, &history.Model{}
	one.Put("a", history.Summary{Events: 1})
	two.Put("a", history.Summary{Events: 2})
	require.ErrorIs(t, checker.Judge(checker.Run{Versions: &checker.Versions{Expected: one, Actual: two}})[0], history.ErrDoubled)
	require.ErrorIs(t, checker.Judge(checker.Run{Versions: &checker.Versions{ExpectedTotals: two, ActualTotals: one}})[0], history.ErrLost)
}
