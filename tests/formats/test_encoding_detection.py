"""Encodings by evidence: exact letters, or a warning that shows the doubt, or a refusal; never silently wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.formats import file_bytes, text_of
from weighbridge.formats.to_utf8 import ENCODINGS, Utf8File, as_utf8, codec_of
from weighbridge.model.errors import FileRefused

WESTERN = ("cp1252", "iso8859-15", "mac-roman", "cp850")
CENTRAL = ("cp1250", "iso8859-2", "mac-latin2", "cp852")
# Language → cells of exports, and the codecs that such files are found in.
TRUTH: dict[str, tuple[str, tuple[str, ...]]] = {
    "German": (
        "Größe wählen|Müller & Söhne|Straßenschuhe für Mädchen|Köln Süd|Jürgen Schäfer|Übergröße|Frühling"
        "|Österreich|Düsseldorf|heiße Angebote|schöne Grüße|Gemüse|Äpfel|Rückläufer",
        (*WESTERN, "cp1250", "iso8859-2"),
    ),
    "French": (
        "Été à la plage|très près|François Lefèvre|crème brûlée|Société Générale|où acheter|Noël à l'hôtel"
        "|déjà vu|forêt|garçon|Hélène Guérin|août|être prêt|prénom",
        WESTERN,
    ),
    "Spanish": (
        "niños y niñas|José Muñoz|camión|año nuevo|mañana será|María Rodríguez|español|teléfono móvil|Núñez"
        "|corazón|Logroño|pingüino|información|jardín",
        WESTERN,
    ),
    "Portuguese": (
        "São João|coração|não há opções|promoção de verão|maçã|Gonçalves|três irmãos|avó e avô|informações"
        "|ônibus|você também|João Simões|pão|lições",
        WESTERN,
    ),
    "Danish": (
        "København|Søren Ærø|børnetøj på tilbud|Århus|smørrebrød|Jørgen Møller|æbler og pærer|år|Ålborg"
        "|køb nu|grøn|kæde|første|fødselsdag",
        WESTERN,
    ),
    "Polish": (
        "Łódź|Gdańsk|Kraków|żółte buty|książki dla dzieci|Małgorzata Wiśniewska|Paweł Dąbrowski|zakupy świąteczne"
        "|promocja dnia: środa|październik|Wrocław|mężczyźni|źródło|kampania jesień",
        CENTRAL,
    ),
    "Czech": (
        "Žižkov|Plzeň|dětské boty|Jiří Dvořák|příliš žluťoučký kůň|České Budějovice|květen|nabídka měsíce"
        "|Ústí nad Labem|Růžena Černá|šaty|čtvrtek|řeka|město",
        CENTRAL,
    ),
    "Hungarian": (
        "Győr|cipő nőknek|őszi kollekció|Székesfehérvár|László Kovács|fűtés|árvíztűrő tükörfúrógép|Dezső"
        "|gyűrűk|első üzlet|később|bőröndök|Szűcs|idő",
        CENTRAL,
    ),
    "Croatian": (
        "Šibenik|Čakovec|dječja odjeća|Marija Kovačević|žene i djeca|Đakovo|kuća|sniženje|Đurđica Horvatić"
        "|cipele za plažu|riječ|mačka|noć|božić",
        ("cp1250", "iso8859-2", "cp852"),
    ),
    "Romanian": (
        "Bucureşti|Timişoara|încălţăminte pentru femei|Ştefan Ioniţă|preţuri mici|Braşov|copii şi bebeluşi"
        "|Constanţa|când|fără|ţară|mâine|îmbrăcăminte|Iaşi",
        ("cp1250", "iso8859-2", "cp852"),
    ),
    "Turkish": (
        "İstanbul|ayakkabı|çocuk giyim|Ayşe Yılmaz|Gökhan Şahin|indirim günleri|büyük alışveriş|Eskişehir"
        "|yağmur|kırmızı|Çağla Öztürk|değil|güneş|ışık",
        ("cp1254", "iso8859-9"),
    ),
    "Russian": (
        "купить обувь|красные туфли|Москва|Санкт-Петербург|Иванов Сергей|детская одежда|распродажа|Объявление",
        ("cp1251", "koi8-r", "cp866", "iso8859-5"),
    ),
    "Greek": (
        "παπούτσια|Αθήνα|γυναικεία ρούχα|Γιώργος Παπαδόπουλος|εκπτώσεις|Θεσσαλονίκη|παιδικά|καλοκαίρι",
        ("cp1253", "iso8859-7"),
    ),
    "Japanese": (
        "新しい靴|赤い靴のキャンペーン|東京都渋谷区|田中太郎|春のセール|レディースファッション|送料無料|大阪市",
        ("cp932", "euc_jp"),
    ),
    "Simplified Chinese": (
        "北京烤鸭|上海市浦东新区|新款女鞋促销|王小明|春季广告系列|运动鞋|免费送货|深圳市",
        ("gb18030",),
    ),
    "Traditional Chinese": (
        "臺北市|女鞋新品優惠|王大明|春季廣告活動|運動鞋|免費送貨|高雄市|歡迎購買",
        ("cp950",),
    ),
    "Korean": (
        "서울특별시|여성 신발 할인|김철수|봄 캠페인|운동화|무료 배송|부산광역시|어린이 옷",
        ("cp949",),
    ),
}
FILES = [(name, codec) for name, (_, codecs) in TRUTH.items() for codec in codecs]


def written(cells: list[str]) -> str:
    rows = [f"2025-03-{day + 1:02},{cell},{day * 7}.50\n" for day, cell in enumerate(cells)]
    return "Day,Campaign,Spend\n" + "".join(rows)


def read(tmp_path: Path, data: bytes, encoding: str = "", *, show_cell: bool = True) -> tuple[str, Utf8File]:
    path = tmp_path / "export.csv"
    path.write_bytes(data)
    found = as_utf8(path, tmp_path / "scratch", encoding, show_cell=show_cell)
    return found.path.read_bytes()[found.start :].decode(), found


def refused(tmp_path: Path, data: bytes, encoding: str = "") -> str:
    with pytest.raises(FileRefused) as caught:
        read(tmp_path, data, encoding)
    assert caught.value.code == "bad_encoding"
    return caught.value.message


def outcome(tmp_path: Path, data: bytes, text: str) -> str:
    try:
        found, file = read(tmp_path, data)
    except FileRefused as refusal:
        return "refused with the option" if "--encoding" in refusal.message else "refused"
    return "exact" if found == text else "warned" if "encoding_guessed" in file.warnings else "silently wrong"


@pytest.mark.parametrize(("language", "codec"), FILES)
def test_a_file_in_its_own_encoding_has_exact_letters(tmp_path: Path, language: str, codec: str) -> None:
    text = written(TRUTH[language][0].split("|"))
    found, file = read(tmp_path, text.encode(codec))
    assert found == text
    assert "encoding_guessed" not in file.warnings or codec not in ("cp1252", "cp1250", "cp932", "gb18030")


@pytest.mark.parametrize(("language", "codec"), FILES)
def test_a_small_file_is_never_silently_wrong(tmp_path: Path, language: str, codec: str) -> None:
    cells = TRUTH[language][0].split("|")
    for first in range(len(cells) - 2):
        text = written(["Shoes", *cells[first : first + 3], "Sale"])
        assert outcome(tmp_path, text.encode(codec), text) in ("exact", "warned", "refused with the option")


def test_the_warning_shows_one_cell_in_both_encodings(tmp_path: Path) -> None:
    found, file = read(tmp_path, written(["Shoes", "Sale", "naïve", "Café"]).encode("cp1252"))
    assert "naïve" in found
    assert file.warnings["encoding_guessed"] == (
        "The file does not declare its encoding. It was read as windows-1252, where line 4 has 'naïve'; "
        "as windows-1250 it would be 'naďve'. If that is right, load the file again with --encoding windows-1250."
    )


def test_without_cells_the_warning_shows_only_the_letters_that_differ(tmp_path: Path) -> None:
    _, file = read(tmp_path, written(["naïve", "Café"]).encode("cp1252"), show_cell=False)
    assert "line 2 has 'ï'; as windows-1250 it would be 'ď'." in file.warnings["encoding_guessed"]
    assert "na" not in file.warnings["encoding_guessed"].replace("name", "")


def test_a_file_without_a_doubt_has_no_warning(tmp_path: Path) -> None:
    for text in (
        "plain,ascii\n1,2\n",
        written(["Müller", "Köln", "Größe"]),
        written(["Łódź", "été", "北京"]),
    ):
        assert not read(tmp_path, text.encode())[1].warnings
    assert not read(tmp_path, written(["Müller", "Köln", "Größe"]).encode("cp1252"))[1].warnings


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_the_option_overrides_detection(tmp_path: Path, name: str) -> None:
    text = "a,b\n" + "".join(
        f"{character},1\n" for character in "éłžæЖФωא靴的가" if character.encode(ENCODINGS[name], "ignore")
    )
    found, file = read(tmp_path, text.encode(ENCODINGS[name]), name)
    assert found.removeprefix("\ufeff") == text
    assert "encoding_guessed" not in file.warnings


def test_the_same_bytes_are_read_as_the_option_says(tmp_path: Path) -> None:
    data = written(["na\xefve"]).encode("cp1252")
    assert "naïve" in read(tmp_path, data, "windows-1252")[0]
    assert "naďve" in read(tmp_path, data, "latin2")[0]
    assert "naÔve" in read(tmp_path, data, "macroman")[0]


def test_a_line_that_is_not_in_the_named_encoding_is_refused(tmp_path: Path) -> None:
    sentence = refused(tmp_path, b"a,b\n1,x\n2,\x81\n", "windows-1252")
    assert sentence.startswith("Line 3 cannot be read as windows-1252. Leave --encoding out")
    assert refused(tmp_path, b"a,b\ncaf\xe9,2\n", "utf-8").startswith("Line 2 cannot be read as UTF-8.")
    assert refused(tmp_path, b"a,b\n\x83,2\n", "shift-jis").startswith("Line 2 cannot be read as shift-jis.")


@pytest.mark.parametrize(
    ("mark", "named"), [(b"\xef\xbb\xbf", "windows-1252"), (b"\xff\xfe", "utf-8"), (b"\xfe\xff", "utf-16-le")]
)
def test_a_byte_order_mark_that_contradicts_the_option_is_refused(
    tmp_path: Path, mark: bytes, named: str
) -> None:
    assert "byte order mark" in refused(tmp_path, mark + b"a,b\n", named)


@pytest.mark.parametrize(
    "named", ["windows-1252", "iso-8859-1", "windows-1250", "cp437", "shift-jis", "koi8-r"]
)
@pytest.mark.parametrize("cell", ["München", "Łódź", "Café Noir", "北京烤鸭", "купить", "Foo™", "O’Neil"])
def test_a_file_in_utf8_is_not_read_in_another_encoding_that_was_named(
    tmp_path: Path, named: str, cell: str
) -> None:
    assert refused(tmp_path, written(["Shoes", cell]).encode(), named) in (
        f"--encoding is {named}, but the file is UTF-8: as {named} its letters would be garbled. Leave --encoding out.",
        f"Line 3 cannot be read as {named}. Leave --encoding out to detect the encoding, or save the file as UTF-8.",
    )


@pytest.mark.parametrize(("cell", "named"), [("小", "gbk"), ("раб", "cp866"), ("Shoes", "windows-1252")])
def test_bytes_that_happen_to_be_utf8_are_read_as_the_option_says(
    tmp_path: Path, cell: str, named: str
) -> None:
    text = written(["Shoes", cell])
    data = text.encode(codec_of(named) or "")
    data.decode()
    assert read(tmp_path, data, named)[0] == text


TOWNS = "Łódź|Kraków|Gdańsk|Wrocław|Poznań|Rzeszów|Białystok|Częstochowa|Toruń|Zielona Góra|Gorzów|Bełchatów"
POLISH = TOWNS.split("|")


@pytest.mark.parametrize(
    ("word", "codec", "garbled"),
    [
        ("Orléans", "mac-roman", "OrlŽans"),
        ("Besançon", "mac-roman", "BesanŤon"),
        ("Óbuda", "cp852", "ŕbuda"),
        ("Köln", "cp850", "K”ln"),
        ("Bełżec", "mac-latin2", "Be¸ýec"),
    ],
)
def test_one_word_in_a_second_old_encoding_is_shown_in_both(
    tmp_path: Path, word: str, codec: str, garbled: str
) -> None:
    data = written(POLISH).encode("cp1250")
    found, file = read(tmp_path, data + f"2025-03-30,{word},1\n".encode(codec))
    assert garbled in found
    sentence = file.warnings["mixed_encodings"]
    assert f"windows-1250, where line 14 has '{garbled}'; in" in sentence
    assert f"it would be '{word}'" in sentence
    few, file = read(tmp_path, written(POLISH[:1]).encode("cp1250") + f"2025-03-30,{word},1\n".encode(codec))
    assert "Łódź" in few
    assert "Łódź" not in file.warnings.get("encoding_guessed", "")


@pytest.mark.parametrize(
    ("codec", "second"), [("cp1252", "mac-roman"), ("mac-roman", "cp1252"), ("cp850", "cp1252")]
)
@pytest.mark.parametrize("lines", [1, 2])
def test_a_few_lines_in_a_second_encoding_do_not_outweigh_many_that_repeat_their_words(
    tmp_path: Path, codec: str, second: str, lines: int
) -> None:
    many = "".join(f"C-{i},Société Générale Orléans {i},Crédit Mutuel à l'été,{i}.50\n" for i in range(20))
    few = "".join(f"C-9{i},Société Générale {town},Crédit,5\n" for i, town in enumerate(["Nîmes", "Évreux"]))
    few = "".join(few.splitlines(keepends=True)[:lines])
    found, file = read(tmp_path, many.encode(codec) + few.encode(second))
    assert many in found
    assert file.warnings.keys() == {"mixed_encodings"}


@pytest.mark.parametrize(("language", "codec"), FILES)
def test_a_file_in_one_encoding_is_not_said_to_mix_two(tmp_path: Path, language: str, codec: str) -> None:
    cells = TRUTH[language][0].split("|")
    for cells_of_file in (cells, [cell.title() for cell in cells], [cell.upper() for cell in cells]):
        data = written(cells_of_file).encode(codec, "ignore")
        assert "mixed_encodings" not in read(tmp_path, data)[1].warnings


def test_apostrophes_in_words_are_not_taken_for_letters_of_another_encoding(tmp_path: Path) -> None:
    cells = [
        "l’été",
        "dell’età",
        "aujourd’hui",
        "O’Neil’s shop",
        "Don’t – stop",
        "un’altra città",
        "geht’s für",
    ]
    assert "mixed_encodings" not in read(tmp_path, written(cells).encode("cp1252"))[1].warnings


def test_an_unknown_encoding_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    assert "did you mean 'windows-1250'?" in refused(tmp_path, b"a", "widnows-1250")


@pytest.mark.parametrize(
    "codec", ["cp1252", "cp1250", "iso8859-2", "mac-roman", "cp932", "gb18030", "cp1251"]
)
@pytest.mark.parametrize("utf8_first", [True, False])
def test_a_file_of_utf8_lines_and_others_is_refused_by_its_lines(
    tmp_path: Path, codec: str, utf8_first: bool
) -> None:
    language = next(name for name, (_, codecs) in TRUTH.items() if codec in codecs)
    cells = TRUTH[language][0].split("|")
    lines = [
        f"1,{cell}\n".encode(codec if place % 2 == utf8_first else "utf-8")
        for place, cell in enumerate(cells)
    ]
    sentence = refused(tmp_path, b"a,b\n" + b"".join(lines))
    assert "mixes encodings" in sentence
    assert "--encoding" in sentence
    line = int(sentence.split()[1])
    with pytest.raises(UnicodeDecodeError):
        lines[line - 2].decode()


def test_one_line_in_another_encoding_in_a_large_file_is_refused(tmp_path: Path) -> None:
    data = "Köln,1\n".encode() * 200_000 + b"caf\xe9,1\n" + "Größe,1\n".encode() * 1000
    assert refused(tmp_path, b"a,b\n" + data).startswith("Line 200002 cannot be read as UTF-8.")


def test_capitals_before_a_closing_quote_do_not_look_like_utf8(tmp_path: Path) -> None:
    text = written(["“CAFÉ”", "Müller", "Köln", "René", "après"])
    assert read(tmp_path, text.encode("cp1252"))[0] == text


def test_text_that_was_encoded_twice_is_loaded_as_it_is_with_a_warning(tmp_path: Path) -> None:
    text = written(["Shoes", "MÃ¼nchen", "KÃ¶ln", "donâ€™t"])
    found, file = read(tmp_path, text.encode())
    assert found == text
    assert file.warnings["double_encoded"].startswith("Line 3 has 'MÃ¼nchen', which was probably 'München'")
    hidden = read(tmp_path, text.encode(), show_cell=False)[1].warnings["double_encoded"]
    assert "nchen" not in hidden


@pytest.mark.parametrize(
    ("cell", "meant"),
    [
        ("MÃ¼nchen", "München"),
        ("CafÃ©", "Café"),
        ("donâ€™t", "don’t"),
        ("Ã˜rsted", "Ørsted"),
        ("Ã…land", "Åland"),
        ("â€œYes", "“Yes"),
        ("NÃ£o", "Não"),
        ("CÃ´te", "Côte"),
        ("GdaÅ„sk", "Gdańsk"),
        ("Â£5", "£"),
    ],
)
def test_one_word_that_was_encoded_twice_is_enough_for_a_warning(
    tmp_path: Path, cell: str, meant: str
) -> None:
    found, file = read(tmp_path, written([cell, "plain", "Köln"]).encode())
    assert cell in found
    assert f"'{meant}'" in file.warnings["double_encoded"]


def test_one_such_word_late_in_a_large_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_bytes, "CHUNK", 100)
    text = written(["plain"] * 50 + ["CafÃ©"] + ["plain"] * 50)
    assert "double_encoded" in read(tmp_path, text.encode())[1].warnings


@pytest.mark.parametrize(
    "cell",
    [
        *("AMANHÃ…", "Ã", "SÃO PAULO", "Â«Bonjour", "Ärger", "Ð¿", "NÃO", "PÃES", "“IRMÔ", "IRMÃ’", "IRMÃ®"),
        *(
            "Â",
            "Âme",
            "ÂGE",
            "MANHÃ – TARDE",
            "IRMÃ\u00a0e",
            "CÂ·D",
            "Ã´",
            "ÅSTRÖM",
            "Å",
            "GÅ–HEM",
            "«Ã»",
            "naïve",
        ),
    ],
)
def test_rare_letters_alone_do_not_look_encoded_twice(tmp_path: Path, cell: str) -> None:
    assert "double_encoded" not in read(tmp_path, written([cell, "Köln"]).encode())[1].warnings


def test_letters_that_were_lost_before_are_warned_about(tmp_path: Path) -> None:
    assert "lost_letters" in read(tmp_path, written(["M\ufffdnchen"]).encode())[1].warnings


def test_seven_bit_japanese_is_refused_by_its_name(tmp_path: Path) -> None:
    assert refused(tmp_path, "a,b\n1,靴\n".encode("iso2022_jp")).startswith("Line 2 is text in ISO-2022-JP.")


@pytest.mark.parametrize(("language", "codec"), FILES)
def test_the_beginning_of_a_file_is_read_as_the_whole_would_be(language: str, codec: str) -> None:
    text = written(TRUTH[language][0].split("|"))
    data = text.encode(codec)
    assert text_of(data[: len(data) - 1]).startswith(text[: len(text) - 8])
    assert text_of(data, codec) == text


@pytest.mark.parametrize(
    ("typed", "codec"),
    [
        ("Windows-1250", "cp1250"),
        ("windows_1250", "cp1250"),
        ("latin2", "iso8859-2"),
        ("L1", "iso8859-1"),
        ("UTF8", "utf-8"),
        ("Mac Roman", "mac-roman"),
        ("sjis", "cp932"),
        ("GB2312", "gb18030"),
        ("rot13", None),
        ("base64", None),
        ("utf-7", None),
        ("", None),
        ("klingon", None),
        ("a\0b", None),
    ],
)
def test_encodings_are_known_by_their_usual_names_and_no_other_codec_is(
    typed: str, codec: str | None
) -> None:
    assert codec_of(typed) == codec


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=60))
def test_bytes_are_only_ever_decoded_never_changed(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    try:
        found, file = read(tmp_path_factory.mktemp("any"), b"a,b\n" + data)
    except FileRefused:
        return
    assert found == (b"a,b\n" + data).decode(file.encoding)


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\x1b"), max_size=60))
def test_utf8_is_never_taken_for_anything_else(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    assert read(tmp_path_factory.mktemp("utf8"), ("a,b\n" + text).encode())[0] == "a,b\n" + text
