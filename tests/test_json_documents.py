"""JSON that is written holds no character that nobody sees."""

import json
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from analyzers.json_documents import compact, encoded

UNSEEN = [*map(chr, (*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))]
TEXTS = st.text(st.sampled_from([*UNSEEN, "\\", '"', "u", "\n"]) | st.characters(exclude_categories=["Cs"]))


@given(TEXTS, TEXTS)
@example("".join(UNSEEN), "\\\x7f")
def test_what_a_terminal_obeys_is_escaped_and_decodes_to_what_it_was(key, text):
    document = {key: [text]}
    for shown in (encoded(document), compact(document).decode()):
        assert json.loads(shown) == document
        assert not set(UNSEEN) & set(shown)
        assert all(unicodedata.category(sign) != "Cc" for sign in shown.replace("\n", ""))


def test_other_text_is_written_as_it_is():
    assert compact({"é": "漢\u200b"}).decode() == '{"é":"漢\u200b"}'
