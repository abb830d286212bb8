"""Projects of keywords: files that belong together, processed in order of arrival, then grouped once.

create       projects are created and retried; queue has every read and change of state
project_run  one run: the files in order of arrival, then the grouping
grouping     keywords → groups; groups has the queries
edits        people edit groups while no file is being processed
overview     pages of projects; lookup finds keywords and groups by name
"""
