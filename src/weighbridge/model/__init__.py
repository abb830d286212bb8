"""The domain model. Pure: only the standard library.

Declarations
    pipeline       pipelines and entities; field: one column; rule: rules for its values
    profile        the layout of one platform's exports
    upsert         what an upsert does with an existing row
    column_limits  columns that hold less than the type of their field
    find_declarations  finds pipelines and providers of users

Files and uploads
    limits         limits from the settings
    read_options   read options; encodings: the encodings that they may name
    sheet          a file as text columns, and the characters that are stripped from its cells
    read_as        how a file was read; progress: how far it has been read
    columns        the use of each column
    upload         an upload and its counts; states: its states and moves
    rejects_layout  the columns of a rejects file
    project        a project and its jobs

Deliveries
    digests        e-mail addresses and phone numbers → digests
    delivery       conversions and their outcomes
    fair_shares    rows per group and run

Everywhere
    retry          retry policies
    errors         all exceptions
    counts         counts in messages
"""
