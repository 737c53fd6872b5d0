#include "gyre/store/sources/object_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <pugixml.hpp>

#include "gyre/base/error.h"

namespace gyre::store {

std::string name_below(std::vector<Object>& objects, const std::string& path, const std::string& source) {
  const std::string folder = path.empty() ? "" : path + "/";
  const bool one =
      std::ranges::any_of(objects, [&](const Object& object) { return !path.empty() && object.name == path; });
  if (one) {
    const auto below = std::ranges::find_if(
        objects, [&](const Object& object) { return object.name.starts_with(folder) && object.name != folder; });
    if (below != objects.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is both an object, '{}', and a folder, with '{}': which is meant cannot be told, and "
                              "no disk holds both. Rename one of them, or name the folder above, and leave one out by "
                              "--exclude-pattern",
                              source, path, below->name));
    }
  }
  const std::string prefix = one ? path.substr(0, path.rfind('/') + 1) : folder;
  std::erase_if(objects,
                [&](const Object& object) { return one ? object.name != path : !object.name.starts_with(folder); });
  for (Object& object : objects) object.name.erase(0, prefix.size());
  std::erase_if(objects, [](const Object& object) {
    return object.size_bytes == 0 && (object.name.empty() || object.name.ends_with('/'));
  });
  if (objects.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} holds no objects; is the path right? (capitals and small letters differ{})", source,
                            path.find('%') == std::string::npos
                                ? ""
                                : ", and in az:// and s3:// a % stands for itself: %20 is no space"));
  }
  std::ranges::sort(objects, {}, &Object::name);
  return prefix;
}

std::string code_of_error_xml(std::string_view text) {
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size())) return {};
  std::string code = document.child("Error").child_value("Code");
  if (!std::ranges::all_of(code, [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0; }))
    return {};
  return code.substr(0, 100);
}

}  // namespace gyre::store
