"""Text that a page must show as text."""

HOSTILE = (
    '<script>document.title="owned"</script> </script><!-- <img src=x onerror="document.title=1"> '
    "\" ' & &lt; `${1}` \u202e\u2028 $title"
)
