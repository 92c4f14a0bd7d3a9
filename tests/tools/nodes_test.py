#!/usr/bin/python3
"""What tools/nodes.py removes of earlier runs, and what it leaves alone."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import nodes  # noqa: E402


class Leftovers(unittest.TestCase):
    def test_folders_of_others_stay(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("tempfile.tempdir", folder):
            left = pathlib.Path(tempfile.mkdtemp(prefix=nodes.folder_prefix("small")))
            others = [pathlib.Path(folder, name) for name in ("small-dataset", "tern-nodes.small-link.x")]
            for path in others:
                path.mkdir()
            nodes.remove_stale_folders(nodes.folder_prefix("small"))
            self.assertFalse(left.exists())
            self.assertTrue(all(path.exists() for path in others))

    def test_namespaces_of_others_stay(self):
        listing = "tern-bench-0 (id: 3)\ntern-bench-switch\ntern-bench-tuner-0\ntern-bench-tuner-switch\nother\n\n"
        said = []

        def command(*words, **_):
            said.append(words)
            return listing if words[:3] == ("ip", "netns", "list") else ""
        network = nodes.Network.__new__(nodes.Network)
        network.name = "tern-bench"
        with mock.patch.object(nodes, "command", command):
            network.remove()
        self.assertEqual([words[3] for words in said if words[2] == "delete"], ["tern-bench-0", "tern-bench-switch"])


if __name__ == "__main__":
    unittest.main()
