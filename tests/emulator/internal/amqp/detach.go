package amqp

// Detach ends a link [AMQP-2.7.7].
type Detach struct {
	Handle uint32
	Closed bool
	Err    *Error
}

func (p *Detach) append(b []byte) ([]byte, error) {
	b, at := beginComposite(b, descDetach)
	b = AppendUint(b, p.Handle)
	b = AppendBool(b, p.Closed)
	b, err := appendError(b, p.Err)
	if err != nil {
		return nil, err
	}
	return endCompound(b, at, 3), nil
}

func (p *Detach) decode(f *fields) error {
	var ok bool
	p.Handle, ok = f.uint32()
	f.must(ok, "handle")
	p.Closed = f.boolean()
	p.Err = f.amqpError()
	return f.end()
}

// ending is an end or a close [AMQP-2.7.8], [AMQP-2.7.9]; both carry only an error.
type ending struct {
	descriptor byte
	Err        *Error
}

func (p *ending) append(b []byte) ([]byte, error) {
	b, at := beginComposite(b, p.descriptor)
	b, err := appendError(b, p.Err)
	if err != nil {
		return nil, err
	}
	return endCompound(b, at, 1), nil
}

func (p *ending) decode(f *fields) error {
	p.Err = f.amqpError()
	return f.end()
}

func appendError(b []byte, e *Error) ([]byte, error) {
	if e == nil {
		return AppendNull(b), nil
	}
	b, at := beginComposite(b, descError)
	b = AppendSymbol(b, e.Condition)
	b = appendOptString(b, e.Description)
	if len(e.Info) == 0 {
		b = AppendNull(b)
	} else {
		info := make(map[Symbol]any, len(e.Info))
		for k, v := range e.Info {
			info[Symbol(k)] = v
		}
		var err error
		if b, err = AppendAny(b, info); err != nil {
			return nil, err
		}
	}
	return endCompound(b, at, 3), nil
}

func (f *fields) amqpError() *Error {
	v := f.any()
	if v == nil || f.err != nil {
		return nil
	}
	e, ok := errorFrom(v)
	if !ok {
		f.err = malformed("error of type %T", v)
	}
	return e
}

func errorFrom(v any) (*Error, bool) {
	d, _ := v.(Described)
	if code, _ := d.Descriptor.(uint64); code != descError {
		return nil, false
	}
	list, ok := d.Value.([]any)
	if !ok || len(list) == 0 {
		return nil, false
	}
	e := &Error{}
	switch c := list[0].(type) {
	case Symbol:
		e.Condition = c
	case string:
		e.Condition = Symbol(c)
	default:
		return nil, false
	}
	if len(list) > 1 && list[1] != nil {
		if e.Description, ok = list[1].(string); !ok {
			return nil, false
		}
	}
	if len(list) > 2 && list[2] != nil {
		e.Info, ok = StringMap(list[2]), isNames(list[2])
	}
	return e, ok && len(list) <= 3
}
