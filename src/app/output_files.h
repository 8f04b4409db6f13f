#pragma once
// The files that a command writes where the user says.

#include <string>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

struct NamedFile {
    std::string option;  // "--out", as the user knows it
    std::string path;    // empty: not given
};

// Refuses, before anything is written, an output that would replace an input or another output.
Status check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

// Replaces the file; does nothing with an empty path.
Status write_output(const std::string& path, const std::string& text);

}  // namespace k3pod
