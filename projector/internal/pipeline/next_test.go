package pipeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNext(t *testing.T) {
	for name, test := range map[string]struct {
		after outcome
		want  step
	}{
		"everything is decided":                             {outcome{progress: true}, finished},
		"the database is away":                              {outcome{undecided: 1, away: true}, later},
		"it is away, and part of the batch was written":     {outcome{undecided: 1, away: true, progress: true}, later},
		"it has been away for long":                         {outcome{undecided: 1, away: true, stuck: maxStuck}, release},
		"a change failed for a reason of its own":           {outcome{undecided: 2, blamed: true}, again},
		"it failed, after a long time in which others wait": {outcome{undecided: 2, blamed: true, waiting: true, stuck: maxStuck}, again},
		"changes were decided":                              {outcome{undecided: 2, progress: true}, again},
		"a version was waited for long enough":              {outcome{undecided: 1, expired: true, waiting: true}, again},
		"a body can be fetched":                             {outcome{undecided: 1, body: true, waiting: true}, fetch},
		"a body can be fetched, after what can be written":  {outcome{undecided: 2, body: true, progress: true}, again},
		"all that is left waits":                            {outcome{undecided: 1, waiting: true}, wait},
		"all that is left waits, for long":                  {outcome{undecided: 1, waiting: true, stuck: time.Hour}, wait},
		"nothing was decided, and nothing waits":            {outcome{undecided: 1}, stuck},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, next(test.after)) })
	}
}
