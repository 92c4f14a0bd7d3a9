"""What the study measures: data sets, recipes by family, links, limits of error."""

# Steps that are recorded. Static codebooks learn from the early ones and are tested on the late ones.
EARLY = range(100, 108)
LATE = range(700, 708)
TENSOR = "layer1.weight"

MODELS = {
    # As many images a step as four ranks take in the demonstration.
    "mnist": {"program": "train_mnist", "steps": 800, "batch": 128, "title": "MNIST perceptron"},
    "chars": {"program": "train_chars", "steps": 800, "batch": 64, "title": "character model"},
}

# family: (biased recipes, which get error feedback; others)
QUANTIZERS = {
    "floats": (["fp8:format=e4m3", "fp8:format=e5m2", "mxfp8:format=e4m3", "mxfp8:format=e5m2",
                "mxfp4", "bitmask:keep=3", "bitmask:keep=7"],
               ["raw", "bf16", "fp16", "natural"]),
    "integers": (["int:bits=8", "int:bits=4", "int:bits=2"],
                 ["int:bits=8,round=stochastic", "int:bits=4,round=stochastic",
                  "int:bits=2,round=stochastic", "qsgd:levels=1", "qsgd:levels=4",
                  "qsgd:levels=15", "qsgd:levels=1,norm=2", "qsgd:levels=4,norm=2",
                  "qsgd:levels=15,norm=2"]),
    "one to two bits": (["3lc:s=1", "3lc:s=1.75", "onebit"], ["terngrad"]),
    "Lloyd": (["lloyd:bits=2", "lloyd:bits=3", "lloyd:bits=4", "lloyd:bits=5", "lloyd:bits=6",
               "int:bits=3", "int:bits=5", "int:bits=6"], []),
    "sparse": (["topk:p=0.01", "topk:p=0.01,exact=on", "topk:p=0.1", "topk:p=0.01+int:bits=8",
                "topk:p=0.1+int:bits=8"],
               ["randk:p=0.01", "randk:p=0.1", "blocksparse:p=0.1", "randk:p=0.1+natural"]),
}

# Each of these with each coder: the comparison of coders.
CODED = ["int:bits=8", "int:bits=4", "int:bits=2", "lloyd:bits=4", "3lc:s=1", "3lc:s=1.75"]
CODED_PLAIN = ["raw", "bf16"]
CODERS = ["huffman", "gzip", "zstd", "lz4", "zrun"]

WITH_MEMORY = ["ef(natural)", "ef(qsgd:levels=4)", "ef(randk:p=0.1)", "ef(blocksparse:p=0.1)",
               "diana(natural)", "diana(qsgd:levels=4)", "diana(terngrad)", "diana(randk:p=0.1)",
               "diana(randk:p=0.1+natural)", "ef21(int:bits=4)", "ef21(lloyd:bits=4)",
               "ef21(3lc:s=1)", "ef21(topk:p=0.1)"]
LOSSLESS = ["lossless", "xordelta"]

# Recipes whose static and dynamic codebooks are compared, by kind of data.
BOOKS = {"gradients": ["ef(lloyd:bits=4)", "ef(int:bits=4)", "ef(3lc:s=1)"],
         "weights": ["none(bf16)", "none(int:bits=8)", "none(lloyd:bits=4)"]}
BOOK_CHUNKS_KIB = [256, 16]

LINKS_GBIT = [0.1, 1, 10, 25, 40, 100]

# (title, key of the row, limit); a key of None: lossless only.
LIMITS = {
    "gradients": [("lossless", None, 0.0), ("a step within 1 %", "step_error", 0.01),
                  ("a step within 20 %", "step_error", 0.2),
                  ("sums within 5 %", "sum_error", 0.05), ("sums within 30 %", "sum_error", 0.3)],
    "weights": [("lossless", None, 0.0), ("within 0.2 %", "step_error", 0.002),
                ("within 1 %", "step_error", 0.01), ("within 15 %", "step_error", 0.15)],
}


def with_coders(stage):
    # 3lc has its own zero-run stage, and what is not quantized has no runs of zeros.
    return [f"{stage}+{coder}" for coder in CODERS
            if coder != "zrun" or stage.startswith(("int", "lloyd"))]


def recipes(kind):
    """(family, recipe) for a kind of data. Gradients add up over steps, so that what a biased
    recipe dropped is given to the next step; weights do not, and are sent without such memory."""
    memory = "ef" if kind == "gradients" else "none"
    rows = []
    for family, (biased, others) in QUANTIZERS.items():
        rows += [(family, f"none({stage})") for stage in others]
        rows += [(family, f"{memory}({stage})") for stage in biased]
    rows += [("with a coder", f"{memory}({coded})") for stage in CODED
             for coded in with_coders(stage)]
    rows += [("with a coder", f"none({coded})") for stage in CODED_PLAIN
             for coded in with_coders(stage)]
    rows += [("with memory", recipe) for recipe in WITH_MEMORY
             if kind == "gradients" or not recipe.startswith("ef(")]
    rows += [("lossless", f"none({recipe})") for recipe in LOSSLESS]
    return rows
