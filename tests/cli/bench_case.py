# SPDX-License-Identifier: Apache-2.0
"""What tests of `ballast bench` share. Nothing here looks at how long something took."""

import json
import unittest

from in_folder import ballast


class Bench(unittest.TestCase):
    def measured(self, *arguments):
        result = ballast("bench", *arguments, "--device", "cpu", "--threads", 1, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refused(self, *arguments, says):
        result = ballast("bench", *arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn(says, result.stderr)
        self.assertLess(len(result.stderr), 300, result.stderr)
