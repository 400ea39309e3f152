"""Time and memory of a method, measured in a process of its own that ends where it exceeds a limit."""

OK, TIME_OUT, OUT_OF_MEMORY, ERROR = "ok", "time-out", "out of memory", "error"
BEYOND = "beyond"  # not tried, because a smaller size of its row reached a limit
NEAREST = {  # published tool -> the library's method that is nearest to it
    "captum_ablation": "perturbation",
    "inseq_gradient": "attnlrp",
    "published_flashtrace": "flashtrace",
    "published_flashtrace_recompute": "flashtrace",
}
