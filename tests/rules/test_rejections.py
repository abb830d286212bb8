"""A refused record says what is wrong with it, and keeps its cells as they were."""

from __future__ import annotations

from rules.checking import check_text, meta


def test_the_first_fault_in_the_order_of_the_file_is_reported_and_the_others_with_it() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1.5", "2025-02-30,x,Spring,-5,see invoice"))
    [rejection] = outcome.rejections
    assert rejection == {
        "row_index": 1,
        "line": 3,
        "column_name": "Day",
        "code": "bad_date",
        "message": "metric_date: expected a date, got '2025-02-30' (line 3). Use 2025-07-31.",
        "more": [
            "campaign.external_id: expected an id of digits, got 'x' (line 3). Use the id as the platform writes it.",
            "impressions: expected at least 0, got '-5' (line 3).",
            "spend: expected an amount, got 'see invoice' (line 3). Use 1234.56 or $1,234.56.",
        ],
        "raw": ["2025-02-30", "x", "Spring", "-5", "see invoice"],
    }


def test_the_order_of_faults_is_that_of_the_columns_not_of_the_fields() -> None:
    header = "Amount spent (USD),Impressions,Campaign name,Day"
    outcome = check_text(meta("1.5,5,A,2025-07-01", "x,y,,2025-02-30", header=header))
    assert outcome.rejections[0]["column_name"] == "Amount spent (USD)"
    assert [sentence.split(":")[0] for sentence in outcome.rejections[0]["more"]] == [
        "impressions",
        "campaign.name",
        "metric_date",
    ]


def test_the_raw_cells_are_all_there_untouched() -> None:
    header = "Day,Campaign name,Bid,Impressions"
    outcome = check_text(meta("2025-07-01,A,0,5", '2025-07-02, A ," =1+1 ",many', header=header))
    assert outcome.rejections[0]["raw"] == ["2025-07-02", " A ", " =1+1 ", "many"]


def test_a_record_over_several_lines_is_known_by_its_first() -> None:
    outcome = check_text(meta('2025-07-01,11,"Spring\nSale",5,1', '2025-07-02,11,"Spring\nSale",x,1'))
    assert (outcome.metrics[0]["line"], outcome.rejections[0]["line"]) == (2, 4)


def test_a_missing_value_is_named() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", ",11,Spring,5,1"))
    assert outcome.rejections[0]["message"] == "metric_date: expected a value, got nothing (line 3)."
    assert outcome.rejections[0]["code"] == "missing_value"


def test_a_long_cell_is_cut_in_the_sentence_and_whole_in_the_record() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", f"2025-07-02,11,Spring,{'x' * 100},1"))
    assert f"got '{'x' * 60}…' (line 3)" in outcome.rejections[0]["message"]
    assert outcome.rejections[0]["raw"][3] == "x" * 100


def test_quotes_and_braces_of_the_file_do_not_disturb() -> None:
    header = 'Day,Campaign name,Impressions,"It\'s {x} ""here"""'
    outcome = check_text(
        meta("2025-07-01,O'Brien {x},5,a", "2025-07-02,O'Brien {x},it's {x},b", header=header)
    )
    assert outcome.rows["campaign"][0]["name"] == "O'Brien {x}"
    assert "got 'it's {x}'" in outcome.rejections[0]["message"]


def test_rejections_come_in_the_order_of_the_file() -> None:
    records = [f"2025-07-01,{10 + i},C{i},{'x' if i % 3 else 5}{',1' if i % 2 else ''}" for i in range(40)]
    lines = [rejection["line"] for rejection in check_text(meta(*records)).rejections]
    assert lines == sorted(lines)
    assert len(lines) > 20
