"""Cut the metrics' numbers out of the golden files: `python tests/golden/collect_metrics.py PATH/TO/golden/open`.

Everything is float64 as the authors' code gave it; attributions are kept because they are the metrics' input.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

ATTCAT = ("aopc_deletion", "aopc_pad", "kendall_tau", "logodds_deletion", "logodds_pad", "original_probs")
ATTCAT += ("probs_deletion", "probs_pad", "kendall_tau_per_instance", "attributions_true_and_flipped")
MASK_LRP = ("aopc_curve", "logodds_curve", "aopc_avg", "logodds_avg", "original_probs", "degradation_probs")
ALTI = ("comp", "comp_per_instance", "comp_curves_bins", "suff", "suff_per_instance", "suff_curves_bins")


def pick(found: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: found[key] for key in keys}


def main(root: Path) -> None:
    given = json.loads((root / "metrics" / "metrics.json").read_text())
    alti = given["alti_comp_suff"]["f64"]
    kept = {
        "rows": given["cls_preprocessed"],
        "head-masks": given["head_masks"],
        "labels": [row["label"] for row in given["data"]["cls"]],
        "attcat": {name: pick(found, ATTCAT) for name, found in given["attcat_SST2_Test_ipynb"]["f64"].items()},
        "mask-lrp": {
            name: pick(found, MASK_LRP)
            for name, found in given["masklrp_calc_cls_metrics"]["f64"].items()
            if "error" not in found
        },
        "qa": given["masklrp_calc_qa_metrics"]["f64"],
        "qa-attcat": given["attcat_SQUADv1_ipynb"]["f64"],
        "qa-rows": given["qa_preprocessed"],
        "alti": {key: alti[key] for key in ALTI}
        | {"attributions": {name: alti["attributions"][name] for name in (*alti["comp"], "pred_class")}},
        "alti-spearman": given["alti_spearman_ours_vs_grad"],
    }
    text = json.dumps(kept, separators=(",", ":"), sort_keys=True)
    (Path(__file__).parent / "metrics.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
