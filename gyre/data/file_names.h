#pragma once

#include <string>
#include <vector>

#include "gyre/data/readable_file.h"

namespace gyre::data {

/// The files that a person means by `name`: those of a folder (files_of_folder()), one file, or those that match a
/// pattern with *, ? and [letters], sorted. As for Python's glob, a star does not match a leading dot, and "**" is a
/// star. A name with brackets is first taken as it stands. Error(kInvalidArgument) where there is nothing, or only
/// folders match.
std::vector<std::string> find_files(const std::string& name, const FileOpener& open);

/// What stands in front of the first part of `pattern` that has a wildcard: "a/b" of "a/b/*.bin"; all of a name
/// without.
std::string folder_before_wildcards(const std::string& pattern);

}  // namespace gyre::data
