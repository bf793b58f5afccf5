package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

const (
	settingName = "`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)`"
	quantity    = `((?:\d[\d,.]*\d|\d|one|two|three|four|five|six|seven|eight|nine|ten)(?: ?(?:ms|s|m|h|min|seconds?|minutes?|hours?))?)`
)

var (
	fenced         = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	quantityAfter  = regexp.MustCompile(settingName + `(?: \(|, |: | of )` + quantity + `[).,;: ]`)
	quantityBefore = regexp.MustCompile(quantity + ` \(` + settingName + `\)`)
	thousands      = regexp.MustCompile(`\d,\d{3}\b`)
	words          = map[string]string{
		"one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10",
	}
	units = map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "second": time.Second, "seconds": time.Second, "m": time.Minute, "min": time.Minute,
		"minute": time.Minute, "minutes": time.Minute, "h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	}
)

// stated is a number that a page gives beside the name of a setting.
type stated struct{ setting, value string }

// statedIn returns the numbers that stand beside the name of a setting: `NAME` (4 s), 4 s (`NAME`),
// `NAME`, 4 s, and cells of a table's column "default".
func statedIn(page string) (found []stated) {
	page = fenced.ReplaceAllString(page, "")
	flat := strings.ReplaceAll(page, "\n", " ")
	for _, m := range quantityAfter.FindAllStringSubmatch(flat, -1) {
		found = append(found, stated{m[1], m[2]})
	}
	for _, m := range quantityBefore.FindAllStringSubmatch(flat, -1) {
		found = append(found, stated{m[2], m[1]})
	}
	name := regexp.MustCompile("^" + settingName + "$")
	column := -1
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			column = -1 // the table has ended
			continue
		}
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
			if cells[i] == "default" {
				column = i
			}
		}
		if m := name.FindStringSubmatch(cells[1]); m != nil && column >= 0 && column < len(cells) {
			if value := strings.Trim(cells[column], "`"); normal(value) != "" {
				found = append(found, stated{m[1], value})
			}
		}
	}
	return found
}

// normal returns a number or a duration in one form, whatever the notation: "2.5 s", "2.5s" and
// "2500ms" are equal, and so are "5,000" and "5000". It returns "" for anything else.
func normal(text string) string {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit := strings.TrimSpace(text[len(number):])
	if word, rest, _ := strings.Cut(text, " "); words[word] != "" {
		number, unit = words[word], rest
	}
	if thousands.MatchString(number) {
		number = strings.ReplaceAll(number, ",", "")
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return ""
	}
	if unit == "" {
		return number
	}
	if units[unit] == 0 {
		return ""
	}
	return time.Duration(value * float64(units[unit])).String()
}

// defaults returns the defaults of every setting: two if the services differ.
func defaults() map[string][]string {
	all := map[string][]string{}
	for _, config := range []reflect.Type{reflect.TypeFor[producer.Config](), reflect.TypeFor[projector.Config]()} {
		known := map[string]string{}
		settings(config, known)
		for name, value := range known {
			all[name] = append(all[name], normal(value))
		}
	}
	return all
}

// A number beside the name of a setting is the setting's default, on every page.
func TestNumbersBesideSettingsAreTheirDefaults(t *testing.T) {
	known, checked := defaults(), 0
	tree.Depend()
	require.NoError(t, filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == "node_modules" || name == ".git") {
			return fs.SkipDir
		}
		if filepath.Ext(file) != ".md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, s := range statedIn(string(text)) {
			if values, isSetting := known[s.setting]; isSetting {
				checked++
				require.Contains(t, values, normal(s.value), "%s gives %s as the value of %s, whose default is another", file, s.value, s.setting)
			}
		}
		return nil
	}))
	require.Greater(t, checked, 40, "numbers are found at all")
}

func TestNumbersBesideSettingsAreFound(t *testing.T) {
	page := "within `TAKEOVER_AFTER` (4 s), or four seconds (`TAKEOVER_AFTER`).\n" +
		"With `FENCE_AFTER`, 2.5 s, and `MAX_IN_FLIGHT_EVENTS` (5,000); `STALL_AFTER` is 10 s here.\n\n" +
		"| setting | default | meaning |\n|---|---|---|\n| `LEASE_DURATION` | 15s | at most 60 s |\n| `START_AT` | | a time |\n\n" +
		"| setting | how |\n|---|---|\n| `SESSION_KEY` | 4 steps |\n\n```sh\n`BATCH_MESSAGES` (1)\n```\n"
	require.Equal(t, []stated{
		{"TAKEOVER_AFTER", "4 s"},
		{"FENCE_AFTER", "2.5 s"},
		{"MAX_IN_FLIGHT_EVENTS", "5,000"},
		{"TAKEOVER_AFTER", "four seconds"},
		{"LEASE_DURATION", "15s"},
	}, statedIn(page))
	for text, want := range map[string]string{
		"4 s": "4s", "four seconds": "4s", "4000ms": "4s", "2.5 s": "2.5s", "5m": "5m0s", "5,000": "5000", "64": "64",
		"json": "", "": "", "aggregate": "", "60 parsecs": "",
	} {
		require.Equal(t, want, normal(text), fmt.Sprintf("%q", text))
	}
}
