#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyre::store {

/// The files and folders that a web server's index page links to (nginx's autoindex, Apache's mod_autoindex and
/// Python's http.server write such), decoded, sorted, each once; folders end with '/'. Links that lead elsewhere than
/// into the page's folder are left out: those to other servers, upwards, and to other orders of the same page.
std::vector<std::string> links_of_index_page(std::string_view html);

}  // namespace gyre::store
