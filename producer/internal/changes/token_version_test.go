package changes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// golden holds published tokens of real servers, and each in the other version. published is the
// version that the server wrote.
var golden = []struct {
	name, operation string
	v1, v2          string
	published       string
}{
	{
		"4.2, 2019, delete, ObjectID", "delete",
		"825D89809B000000012B022C0100296E5A1004693B90960EC349A2B616B1B2F1CF3D2346645F696400645D897EE109190B015FCB21AD0004",
		"825D89809B000000012B042C0100296E5A1004693B90960EC349A2B616B1B2F1CF3D23463C6F7065726174696F6E54797065003C64656C6574650046646F63756D656E744B65790046645F696400645D897EE109190B015FCB21AD000004",
		tokenV1,
	},
	{
		"4.4, 2021, insert, ObjectID, the thirtieth of its second", "insert",
		"8260912B960000001E2B022C0100296E5A100497F661F4018447EEAE871045D76AB3E846645F6964006460912B96CE0EFD70017274DA0004",
		"8260912B960000001E2B042C0100296E5A100497F661F4018447EEAE871045D76AB3E8463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B65790046645F6964006460912B96CE0EFD70017274DA000004",
		tokenV1,
	},
	{
		"the manual of 5.0, a string", "insert",
		"82612E8513000000012B022C0100296E5A1004A5093ABB38FE4B9EA67F01BB1A96D812463C5F6964003C5F5F5F78000004",
		"82612E8513000000012B042C0100296E5A1004A5093ABB38FE4B9EA67F01BB1A96D812463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B657900463C5F6964003C5F5F5F7800000004",
		tokenV1,
	},
	{
		"6.0 (it has a wallTime), 2024, update", "update",
		"8266BDC161000000012B022C0100296E5A1004E9487B8EF2864139A085DBC4AD6DB29C46645F69640064657ADB477DF7FD75CBED4B4D0004",
		"8266BDC161000000012B042C0100296E5A1004E9487B8EF2864139A085DBC4AD6DB29C463C6F7065726174696F6E54797065003C7570646174650046646F63756D656E744B65790046645F69640064657ADB477DF7FD75CBED4B4D000004",
		tokenV1,
	},
	{
		"7.0, 2023, update, a string", "update",
		"8265580539000000012B022C0100296E5A1004A7F55A5B35BD4C7DB2CD56C6CFEA9C49463C5F6964003C62656572000004",
		"8265580539000000012B042C0100296E5A1004A7F55A5B35BD4C7DB2CD56C6CFEA9C49463C6F7065726174696F6E54797065003C7570646174650046646F63756D656E744B657900463C5F6964003C6265657200000004",
		tokenV2,
	},
	{
		"8.0, 2025, insert", "insert",
		"8267C867A2000000192B022C0100296E5A1004D3284E04D8914467A2160201812E4C4C46645F6964006467C867A2FB1CBCD579F4E4DE0004",
		"8267C867A2000000192B042C0100296E5A1004D3284E04D8914467A2160201812E4C4C463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B65790046645F6964006467C867A2FB1CBCD579F4E4DE000004",
		tokenV2,
	},
	{
		"8.x, 2026, delete, a string", "delete",
		"8269EEDD10000000022B022C0100296E5A1004343A87E2D14843F68EE9F0BDD1A9E229463C5F6964003C636F6465782D636170747572652D31373737323631383337373132000004",
		"8269EEDD10000000022B042C0100296E5A1004343A87E2D14843F68EE9F0BDD1A9E229463C6F7065726174696F6E54797065003C64656C6574650046646F63756D656E744B657900463C5F6964003C636F6465782D636170747572652D3137373732363138333737313200000004",
		tokenV2,
	},
	{"a high-water mark, version 1 of 4.4 and 5.0", "", "82612F653E000000022B0229296E04", "82612F653E000000022B0429296E1404", tokenV1},
	{"a high-water mark, version 2", "", "8263515EAC000000022B0229296E04", "8263515EAC000000022B0429296E1404", tokenV2},
}

// G3: a change has one text, no matter from which version of MongoDB it is read. These texts are
// never changed, only extended: a different text is a different message with another effect.
func TestG3ATokenOfEitherVersionHasOneText(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			for _, form := range []string{tokenV1, tokenV2} {
				want := map[string]string{tokenV1: g.v1, tokenV2: g.v2}[form]
				for _, token := range []string{g.v1, g.v2} {
					got, err := translateToken(form, token, g.operation)
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
			}
		})
	}
}

// Numbers of any width in a transaction and of fragments, and ids that contain the bytes that a
// token is made of.
func TestG3EveryPartOfATokenIsKept(t *testing.T) {
	const head1, head2 = "8266BDC161000000012B022C0100", "8266BDC161000000012B042C0100"
	const uuid = "5A1004E9487B8EF2864139A085DBC4AD6DB29C"
	const operation = "463C6F7065726174696F6E54797065003C75706461746500"
	for _, index := range []string{"29", "2B02", "2BFE", "2C0100", "2D020000"} {
		for _, fragment := range []string{"", "29", "2B02", "2B04"} {
			for _, key := range []string{"46645F69640064657ADB477DF7FD75CBED4B4D00", "461E5F6964002B0A00", "461E5F6964002900", "463C5F6964003C2904460000FF0000", "461E5F6964002B2B0000"} {
				v1 := head1 + index + "6E" + uuid + key + fragment + "04"
				v2 := head2 + index + "6E" + uuid + operation + "46646F63756D656E744B657900" + key + "00" + fragment + "04"
				got, err := translateToken(tokenV2, v1, "update")
				require.NoError(t, err)
				require.Equal(t, v2, got)
				got, err = translateToken(tokenV1, v2, "update")
				require.NoError(t, err)
				require.Equal(t, v1, got)
			}
		}
	}
}

// G6: an unknown version is not guessed.
func TestG6ATokenOfAnUnknownVersionIsRefused(t *testing.T) {
	v2 := golden[5].v2
	for name, token := range map[string]string{
		"version 3":             strings.Replace(v2, tokenV2, "2B06", 1),
		"version 0":             strings.Replace(v2, tokenV2, "29", 1),
		"cut off":               v2[:40],
		"another identifier":    v2[:80] + "04",
		"no end":                v2[:len(v2)-2],
		"a key that never ends": v2[:len(v2)-6] + "04",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := translateToken(tokenV1, token, "insert")
			require.ErrorIs(t, err, ErrTokenVersion)
		})
	}
	_, err := translateToken("2B06", v2, "insert")
	require.ErrorIs(t, err, ErrTokenVersion)
	_, _, err = numbering{}.next(checkpoint.Progress{Position: golden[0].v1}, strings.Replace(v2, tokenV2, "2B06", 1), "insert")
	require.ErrorIs(t, err, ErrTokenVersion)
	unknown := strings.Replace(v2, tokenV2, "2B06", 1)
	_, position, err := numbering{}.next(checkpoint.Progress{Position: strings.Replace(golden[0].v2, tokenV2, "2B06", 1)}, unknown, "insert")
	require.NoError(t, err, "a stream that began with such tokens goes on")
	require.Equal(t, unknown, position)
}

// G2: the order holds across a change of versions, in either version: after each change of leaders
// every position is greater than all before it.
func TestG2PositionsGrowAcrossVersions(t *testing.T) {
	for _, form := range []string{tokenV1, tokenV2} {
		at := checkpoint.Progress{Position: strings.Replace("8250000000000000012B0429296E1404", tokenV2, form, 1)}
		for i, g := range []int{0, 1, 2, 4, 3, 5, 6} {
			token := golden[g].v1
			if i%2 == 0 {
				token = golden[g].v2
			}
			_, position, err := numbering{}.next(at, token, golden[g].operation)
			require.NoError(t, err)
			require.Greater(t, position, at.Position)
			require.Equal(t, form, envelope.TokenForm(position))
			at.Position = position
		}
	}
}

// G2: with one cluster time on two shards, a server of version 2 returns the delete before the
// insert, whatever their documents. In version 1 its text is the greater one.
func TestG2ATieOfTwoShardsKeepsTheServersOrder(t *testing.T) {
	n := numbering{}
	const time, rest = "8266BDC16100000001", "2C0100296E5A1004E9487B8EF2864139A085DBC4AD6DB29C463C6F7065726174696F6E54797065003C"
	token := func(operation, id string) string {
		return time + tokenV2 + rest + fmt.Sprintf("%X", operation) + "0046646F63756D656E744B657900463C5F6964003C" + fmt.Sprintf("%X", id) + "00000004"
	}
	deleted, inserted, later := token("delete", "z"), token("insert", "a"), token("insert", "b")
	require.Less(t, deleted, inserted, "the server's order")
	at := checkpoint.Progress{Position: "8266BDC160000000012B0229296E04"}
	first := n.must(t, at, deleted)
	second := n.must(t, first, inserted)
	third := n.must(t, second, later)
	require.Greater(t, second.Position, first.Position)
	require.Greater(t, third.Position, second.Position)
	require.Equal(t, second, n.must(t, first, inserted), "another leader, from a checkpoint between them")
	next := n.must(t, third, strings.Replace(token("insert", "a"), time, "8266BDC16100000002", 1))
	require.Greater(t, next.Position, third.Position)

	ids := map[string]bool{}
	for _, token := range []string{deleted, inserted, later} {
		id, _, err := n.next(third, token, map[bool]string{true: "delete", false: "insert"}[token == deleted])
		require.NoError(t, err)
		ids[id] = true
	}
	require.Len(t, ids, 3, "a tie is in the position alone")
}

// G3: a document with a very long _id has a position of its own that fits into a message and into a
// guard, in order.
func TestG3AVeryLongPositionIsBounded(t *testing.T) {
	long := func(time, id string) string {
		return time + tokenV2 + "2C0100296E5A1004E9487B8EF2864139A085DBC4AD6DB29C" + strings.Repeat("78", 20_000) + id + "04"
	}
	n := numbering{}
	start := checkpoint.Progress{Position: "8266BDC160000000012B0429296E1404"}
	a := n.must(t, start, long("8266BDC16100000001", "61"))
	require.Len(t, a.Position, maxPosition)
	require.Equal(t, a, n.must(t, start, long("8266BDC16100000001", "61")))
	require.NotEqual(t, a, n.must(t, start, long("8266BDC16100000001", "62")))
	b := n.must(t, a, long("8266BDC16100000002", "61"))
	require.Greater(t, b.Position, a.Position)
	require.Less(t, a.Position, long("8266BDC16100000001", "61"), "what was bounded is below what an earlier version wrote: it is known again")
	require.Equal(t, uint32(0x66BDC161), envelope.TokenTime(a.Position).T)
	identity, _, err := n.next(start, long("8266BDC16100000001", "61"), "insert")
	require.NoError(t, err)
	require.Equal(t, long("8266BDC16100000001", "61"), identity, "the MessageId is a hash anyway, and stays what it was")
}

func TestAHighWaterMarkIsNotAnEvent(t *testing.T) {
	for token, mark := range map[string]bool{
		"826B00EBB8000000012B0429296E1404": true, // version 2
		"826B00EBB8000000012B0229296E04":   true, // version 1
		"826B00EBB8000000012B042C0100296E5A10043037A61740764D7ABEA4C6091757554046645F69640064386D438105419A05CD91019C000004": false,
		"AeARBpQ/AAAA": false, "": false, "82": false,
	} {
		require.Equal(t, mark, isHighWaterMark(token), token)
	}
}

// The type bits of a token lose the bit of the operation. The bits are those of MongoDB 6.0.27, for
// an _id of each kind; 5.0.4 resumed from each of these tokens after conversion to version 1.
func TestAnOlderTokenKeepsTheTypesOfItsValues(t *testing.T) {
	for _, c := range []struct {
		name        string
		newer, want []byte
	}{
		{"an integer of 64 bits", []byte{0x82, 0x00, 0x01}, []byte{0x82, 0x80, 0x00}},
		{"a double", []byte{0x82, 0x80, 0x00}, []byte{0x82, 0x40, 0x00}},
		{"a symbol", []byte{0x81, 0x80}, []byte{0x40}},
		{"a decimal, 2.50", []byte{0x82, 0x80, 0x3D}, []byte{0x82, 0xC0, 0x1E}},
		{"a document of four", []byte{0x83, 0x00, 0xB5, 0x07}, []byte{0x83, 0x80, 0xDA, 0x03}},
	} {
		t.Run(c.name, func(t *testing.T) {
			token, err := bson.Marshal(bson.D{{Key: "_data", Value: golden[0].v2}, {Key: "_typeBits", Value: bson.Binary{Data: c.newer}}})
			require.NoError(t, err)
			older, ok := OlderToken(token)
			require.True(t, ok)
			require.Equal(t, golden[0].v1, envelope.TokenText(older))
			_, bits := older.Lookup("_typeBits").Binary()
			require.Equal(t, c.want, bits)
			_, ok = OlderToken(older)
			require.False(t, ok, "it is of version 1 already")
		})
	}
}
