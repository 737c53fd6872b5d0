#pragma once

#include <string>
#include <vector>

#include "gyre/store/sources/source.h"

namespace gyre::store {

/// Turns the listing of an object store, whose names begin with `path` letter by letter, into the objects of a source:
/// the one that `path` names, or else those below it as a folder ("set" has found "set2/…" too), with names below it,
/// sorted. Empty objects that stand for folders are left out. Returns what the names in the store begin with.
/// Error(kNotFound) where nothing is left; `source` is named.
std::string name_below(std::vector<Object>& objects, const std::string& path, const std::string& source);

/// The code in the XML with which Azure's and S3's servers explain an error: "AuthenticationFailed"; empty where it
/// names none.
std::string code_of_error_xml(std::string_view text);

}  // namespace gyre::store
