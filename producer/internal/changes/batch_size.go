package changes

// answers bounds the memory of the server's answers: each is held as a whole while its events are copied out of it. By default
// the server fills 16 MB. An answer can be bounded by a number of events only, so that number follows from their size.
//
// It is pure state, not safe for concurrent use.
type answers struct {
	average float64 // bytes of an event, lately; 0: none was seen
	asked   int32
	single  int // how many more events are to be asked for one by one
}

const (
	answerBytes = 1 << 20
	fewest      = 8   // an answer costs a round trip
	firstAnswer = 100 // before an event was seen
	most        = 1000
)

func newAnswers() *answers { return &answers{asked: firstAnswer} }

// one asks for the next events one by one, as many as the largest answer holds. changed is false when it did so already.
func (a *answers) one() (changed bool) {
	changed = a.single == 0
	a.single, a.asked = most, 1
	return changed
}

// took records an event's size and gives the number of events to ask for from now on; changed says that it is a new one.
func (a *answers) took(size int) (number int32, changed bool) {
	if a.single > 0 {
		if a.single--; a.single > 0 {
			return a.asked, false
		}
		a.asked = firstAnswer
		return a.asked, true
	}
	const weight = 1.0 / 16 // the last few dozen events count
	if a.average == 0 {
		a.average = float64(size)
	}
	a.average += (float64(size) - a.average) * weight
	number = int32(min(max(answerBytes/a.average, fewest), most))
	if number > a.asked*3/4 && number < a.asked*4/3 {
		return a.asked, false
	}
	a.asked = number
	return number, true
}
