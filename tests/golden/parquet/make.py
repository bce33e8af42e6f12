"""Writes the Parquet files beside it, with the nested types that data sets for reinforcement learning have (verl's
`prompt`, `reward_model`, `extra_info`), and `rows.jsonl`: the same rows as pyarrow reads them back.

    python tests/golden/parquet/make.py        # needs pyarrow
"""

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent

message = pa.struct([("role", pa.string()), ("content", pa.string())])
schema = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(message)),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string()), ("ratio", pa.float64())])),
        ("tags", pa.list_(pa.string())),
        ("votes", pa.map_(pa.string(), pa.int32())),
        ("grid", pa.list_(pa.list_(pa.int32()))),
        ("level", pa.int32()),
        ("checked", pa.bool_()),
    ]
)


def row(index):
    return {
        "data_source": "sums" if index % 2 else "größer",
        "prompt": [{"role": "system", "content": "Add."}][: index % 2] + [{"role": "user", "content": f"{index}+1="}],
        "reward_model": {"style": "rule", "ground_truth": str(index + 1)},
        "extra_info": {"index": index, "split": None if index == 3 else "train", "ratio": index / 4},
        "tags": None if index == 2 else [f"t{n}" for n in range(index % 3)],
        "votes": [("yes", index), ("no", -1)],
        "grid": [[index, 1], []],
        "level": None if index == 1 else index,
        "checked": index % 2 == 0,
    }


rows = [row(index) for index in range(7)]
for codec in ["snappy", "zstd", "gzip", "none"]:
    table = pa.Table.from_pylist(rows, schema=schema)
    # Several groups of rows, and a dictionary, as larger files have.
    pq.write_table(table, HERE / f"{codec}.parquet", compression=codec, row_group_size=3)
back = pq.read_table(HERE / "zstd.parquet").to_pylist()
for found in back:
    found["votes"] = dict(found["votes"])
(HERE / "rows.jsonl").write_text("".join(json.dumps(found, ensure_ascii=False) + "\n" for found in back))
