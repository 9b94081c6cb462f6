"""The multiverse on a Dask cluster of two worker processes: the same numbers, bit for bit."""

import pandas as pd
import pytest

import trueup as tu

distributed = pytest.importorskip("distributed")


def test_a_dask_cluster_gives_the_same_numbers(small, options, mv, tmp_path):
    from joblib import parallel_config

    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path),
    )
    with cluster, distributed.Client(cluster), parallel_config(backend="dask"):
        other = tu.multiverse(["v ~ t", "v ~ t + x"], small, **options)
    columns = ["estimate", "std_error", "df", "conf_low", "conf_high", "p_value"]
    pd.testing.assert_frame_equal(
        mv.tidy(all_terms=True)[columns], other.tidy(all_terms=True)[columns], check_exact=True
    )
