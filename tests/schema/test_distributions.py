"""What is installed is what Python's own library says is installed."""

import sys
import zipfile
from importlib.metadata import distributions as found_by_python

from benchhouse.schema.distributions import UNNAMED, distributions, version_of

METADATA = "Metadata-Version: 2.1\nName: Some-Package\nVersion: 3.1\n\nVersion: 9\n"
POINTS = "# ours\n[benchhouse.drivers]\nfast = some.module:Fast\n\n[ console_scripts ]\nx=some:main [extra]\n"


def test_names_versions_and_entry_points_are_those_of_the_standard_library():
    expected = {(item.metadata["Name"], item.version) for item in found_by_python()}
    assert {item.name_and_version() for item in distributions()} == expected
    points = {(point.group, point.name, point.value) for item in found_by_python() for point in item.entry_points}
    assert {point for item in distributions() for point in item.entry_points()} == points
    assert version_of("pydantic") == __import__("pydantic").VERSION
    assert version_of("nowhere") == ""


def test_folders_old_files_archives_and_damage(tmp_path, monkeypatch):
    place = tmp_path / "site" / "some_package-3.1.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(METADATA)
    (place / "entry_points.txt").write_text(POINTS)
    (tmp_path / "site" / "old-1.egg-info").write_text("Name: old\nVersion: 1\n")
    (tmp_path / "site" / "damaged-1.dist-info").mkdir()
    long = tmp_path / "site" / "long-2.dist-info"
    long.mkdir()
    (long / "METADATA").write_text(f"Classifier: {'x' * 5000}\nName: long\nVersion: 2\n\n")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed-4.dist-info/METADATA", "Name: packed\nVersion: 4\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path / "packed.zip"), str(tmp_path / "nowhere")])
    found = {item.name_and_version(): item for item in distributions()}
    assert set(found) == {("Some-Package", "3.1"), ("old", "1"), (UNNAMED, "0"), ("long", "2"), ("packed", "4")}
    points = list(found["Some-Package", "3.1"].entry_points())
    assert points == [("benchhouse.drivers", "fast", "some.module:Fast"), ("console_scripts", "x", "some:main [extra]")]
