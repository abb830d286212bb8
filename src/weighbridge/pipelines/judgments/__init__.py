"""Court judgments: one row per case, and the plaintiffs, recognised by e-mail, phone or name."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from weighbridge.model import upsert
from weighbridge.model.pipeline import Computed, Entity, Field, Pipeline, Ref
from weighbridge.model.rule import Normaliser, Validator
from weighbridge.rules import n, v

CASE_NUMBER = [
    "Case Number",
    "Case No",
    "Case #",
    "Case",
    "File #",
    "File Number",
    "Docket Number",
    "Index Number",
]
PLAINTIFF = ["Plaintiff Name", "Plaintiff", "Creditor", "Judgment Creditor"]
DEFENDANT = ["Defendant Name", "Defendant", "Debtor", "Judgment Debtor"]
EMAIL = ["Plaintiff Email", "Plaintiff E-mail", "Email", "E-mail"]
PHONE = ["Plaintiff Phone", "Plaintiff Phone Number", "Phone", "Phone Number", "Telephone"]
AMOUNT = ["Judgment Amount", "Amount", "Judgment", "Total Judgment"]
FILED = ["Filing Date", "Entry Date", "Date Filed", "Filed", "Judgment Date", "Date"]

# The same as Python's strip() and lower(): strips more kinds of space than a cell does, and keeps the dot of İ.
_SPACE = r"[\s\x{0B}\x{1C}-\x{1F}\x{85}\pZ]+"
ADDRESS = Normaliser(
    "address", f"lower(replace(regexp_replace({{x}}, '^{_SPACE}|{_SPACE}$', '', 'g'), 'İ', 'i\u0307'))"
)

# A name without letters and digits identifies no one: such plaintiffs get no key and are not merged.
DEDUPE_KEY = r"""CASE
    WHEN {email} IS NOT NULL THEN 'email:' || {email}
    WHEN {phone} IS NOT NULL THEN 'phone:' || right(regexp_replace({phone}, '[^\p{Nd}]', '', 'g'), 10)
    WHEN regexp_matches(lower({name}), '[a-z0-9]')
        THEN 'name:' || md5(regexp_replace(lower({name}), '[^a-z0-9]', '', 'g'))[:16]
    END"""

# A totals row, or a header in the middle of the file, is not a case.
HAS_A_DIGIT = Validator(
    "has_a_digit", r"regexp_matches({x}, '\p{Nd}')", "bad_case_number", "a case number, with a digit in it"
)
# Rounded numbers would merge thousands of cases or people into one.
NOT_ROUNDED = Validator(
    "not_rounded",
    r"NOT regexp_full_match({x}, '[0-9]+[.,][0-9]+[eE]\+?[0-9]+|[0-9]+[eE]\+[0-9]+|[0-9]{7,}[.,]0+')",
    "mangled_id",
    "a number with all its digits",
    "A spreadsheet program has rounded it. Export the file again, and do not open it in such a program.",
)

plaintiff = Entity(
    table="plaintiffs",
    key=["dedupe_key"],
    fields=[
        Field("dedupe_key", otherwise=Computed(DEDUPE_KEY), personal=True),
        Field("name", header=PLAINTIFF, normalise=[n.fold_space], personal=True),
        Field(
            "email",
            header=EMAIL,
            normalise=[ADDRESS],
            validate=[v.matches(r"[^@\s]+@[^@\s]+\.[^@\s]+", expected="an e-mail address", code="bad_email")],
            personal=True,
        ),
        Field(
            "phone",
            header=PHONE,
            validate=[
                v.matches(
                    r"(?s)(?:\P{Nd}*\p{Nd}){7,15}\P{Nd}*",
                    expected="a phone number of 7 to 15 digits",
                    code="bad_phone",
                ),
                NOT_ROUNDED,
            ],
            personal=True,
        ),
    ],
)
judgment = Entity(
    table="judgments",
    key=["case_number"],
    refs=[Ref("plaintiff_id", "plaintiff")],
    fields=[
        Field(
            "case_number",
            header=CASE_NUMBER,
            normalise=[n.fold_space, n.upper],
            validate=[v.max_length(200), HAS_A_DIGIT, NOT_ROUNDED],
            required=True,
        ),
        Field("plaintiff_name", header=PLAINTIFF, normalise=[n.fold_space], personal=True),
        Field("defendant_name", header=DEFENDANT, normalise=[n.fold_space], personal=True),
        Field("judgment_amount", Decimal, header=AMOUNT, normalise=[n.money], validate=[v.at_least(0)]),
        Field(
            "filing_date",
            date,
            header=FILED,
            normalise=[n.date],
            validate=[v.at_least(date(1900, 1, 1)), v.not_in_future],
        ),
        Field("court", header=["Court", "Court Name"]),
        Field("county", header=["County"]),
    ],
    upsert=upsert.keep_known_values,
    source_file="source_file",
)
pipeline = Pipeline(
    name="judgments",
    entities=[plaintiff, judgment],
    nulls=["-", "--", "N/A", "n/a", "NA", "None", "none", "NULL", "null"],
    # American courts: 3/4/2025 is 4 March, 1,234 is a thousand.
    decimal=".",
    day_first=False,
    expects=[
        "judgment.case_number",
        "judgment.plaintiff_name",
        "judgment.defendant_name",
        "judgment.judgment_amount",
        "judgment.filing_date",
    ],
    staged_as="intake.simplicity_validated_rows",
)
