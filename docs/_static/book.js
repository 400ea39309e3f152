// Results of a search quote the pages that they found, which a browser will not read for a page opened from a file.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
