// What sources are called, and what lets us in: URLs, signatures, keys, listings.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/store/sources/aws_keys.h"
#include "gyre/store/sources/aws_signature.h"
#include "gyre/store/sources/azure_listing.h"
#include "gyre/store/sources/index_page.h"
#include "gyre/store/sources/object_names.h"
#include "gyre/store/sources/open.h"
#include "gyre/store/sources/s3.h"
#include "gyre/store/sources/sas.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Text, TakesUrlsApartAndShowsNoSecret) {
  const auto url = split_url("HTTPS://user:word@host:1/a%20b/c?x=1&y=%26#part");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->scheme, "https");
  EXPECT_EQ(url->authority, "user:word@host:1");
  EXPECT_EQ(url->path, "/a%20b/c");
  EXPECT_EQ(url->query, "x=1&y=%26");
  EXPECT_EQ(url->fragment, "part");
  EXPECT_EQ(shown_url("https://user:word@host:1/a?sig=secret#b"), "https://host:1/a");
  EXPECT_FALSE(split_url("/a/folder"));
  EXPECT_FALSE(split_url("://x"));
  EXPECT_THAT(parse_query("a=1&&b&c=%2B%zz"),
              ElementsAre(std::pair("a", "1"), std::pair("b", ""), std::pair("c", "+%zz")));
}

TEST(Text, EncodesWhatDecodesAgain) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(decode(encode_component(all)), all);
  EXPECT_EQ(decode(encode_path(all)), all);
  EXPECT_EQ(encode_path("a b/ü"), "a%20b/%C3%BC");
  EXPECT_EQ(encode_component("a/b"), "a%2Fb");
}

TEST(Text, TellsDatesFromETags) {
  EXPECT_TRUE(is_http_date("Thu, 26 Nov 2026 12:00:00 GMT"));
  for (const char* text : {"", "\"Thu, 26 Nov 2026 12:00:00 GMT\"", "0x8D", "Thu, 26 Nov 2026 12:00:00 GMT+1",
                           "thu, 26 Nov 2026 12:00:00 GMT", "Thu, 26 Nov 2026 12:00:00 UTC"}) {
    EXPECT_FALSE(is_http_date(text)) << text;
  }
}

TEST(Text, ReadsBase64AndRefusesWhatIsNotWhole) {
  for (const std::string text : {"f", "fo", "foo", "foob"}) {
    EXPECT_EQ(as_text(*decode_base64(encode_base64(as_bytes(text)))), text);
  }
  EXPECT_FALSE(decode_base64(""));
  EXPECT_FALSE(decode_base64("abc"));
  EXPECT_FALSE(decode_base64("ab!="));
}

TEST(Sas, IsTakenAsPeoplePasteIt) {
  const std::string query = "sv=2021-12-02&se=2030-01-01T00%3A00Z&sp=rl&sr=c&sig=a%2Bb%3D";
  for (const std::string& text : {query, "?" + query, "https://a.blob.core.windows.net/c?" + query, query + "\n"}) {
    EXPECT_EQ(Sas::parse(text).query(), query);
  }
  EXPECT_THAT(message_of([&] { Sas::parse(query.substr(0, query.find("&sig"))); }), HasSubstr("lacks its field 'sig'"));
  EXPECT_THAT(message_of([] { Sas::parse("sas.txt"); }), HasSubstr("@sas.txt"));
  EXPECT_THAT(message_of([] { Sas::parse("sv=1&sig=x&sp=r"); }), HasSubstr("lacks its field 'se'"));
  EXPECT_THAT(message_of([] { Sas::parse("sv=1&sig=x&sp=r&se=2030-01-01T00%253A00Z"); }), HasSubstr("is no time"));
}

TEST(Sas, SaysWhyItDoesNotServe) {
  const auto now = *parse_utc("2026-11-26T12:00:00Z");
  const auto check = [&](const std::string& fields, bool list = true, bool encrypted = true) {
    return message_of([&] { Sas::parse("sv=1&sig=x&" + fields).check_reading(now, list, encrypted); });
  };
  EXPECT_EQ(check("se=2026-11-27&sp=rl&sr=c"), "nothing was thrown");
  EXPECT_EQ(check("si=policy&sr=c"), "nothing was thrown");
  EXPECT_EQ(check("se=2026-11-27&sp=r&sr=b", false), "nothing was thrown");
  EXPECT_EQ(check("se=2026-11-26T12:00Z&sp=rl&sr=c"),
            "the SAS expired at 2026-11-26 12:00:00 UTC (it is 2026-11-26 12:00:00 UTC)");
  EXPECT_THAT(check("st=2026-11-26T12:02Z&se=2026-11-27&sp=rl"), HasSubstr("is not valid before"));
  EXPECT_THAT(check("se=2026-11-27&sp=l&sr=c"), HasSubstr("does not allow reading"));
  EXPECT_THAT(check("se=2026-11-27&sp=r&sr=c"), HasSubstr("does not allow listing"));
  EXPECT_THAT(check("se=2026-11-27&sp=rl&ss=q&srt=co"), HasSubstr("is not for blobs"));
  EXPECT_THAT(check("se=2026-11-27&sp=rl&ss=b&srt=c"), HasSubstr("is not for objects"));
  EXPECT_THAT(check("se=2026-11-27&sp=rl&spr=https", true, false), HasSubstr("is for https alone"));
  EXPECT_FALSE(Sas::parse("sv=1&sig=x&se=2026-11-27&sp=rl&sr=b").may_list());
  EXPECT_FALSE(Sas::parse("sv=1&sig=x&se=2026-11-27&sp=rl&ss=b&srt=o").may_list());
  EXPECT_TRUE(Sas::parse("sv=1&sig=x&si=policy&sr=c").may_list());
}

TEST(Sas, ReadsTimesOfEveryForm) {
  const auto day = *parse_utc("2026-11-20");
  EXPECT_EQ(*parse_utc("2026-11-20T12:30Z"), day + std::chrono::minutes(12 * 60 + 30));
  EXPECT_EQ(*parse_utc("2026-11-20T12:30:15.1234567Z"), day + std::chrono::seconds((12 * 60 + 30) * 60 + 15));
  for (const char* text :
       {"", "soon", "2026-13-01", "2026-02-30", "2026-11-20T25:00Z", "2026-11-20T12:00", "2026-11-20T12Z"}) {
    EXPECT_FALSE(parse_utc(text)) << text;
  }
}

TEST(AzureListing, ReadsAPageAndLeavesFoldersOut) {
  const AzurePage page = parse_azure_page(
      "\xEF\xBB\xBF<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>"
      "<Blob><Name>a/b &amp; c</Name><Properties><Content-Length>12</Content-Length><Etag>0x8D</Etag>"
      "<Content-Encoding>gzip</Content-Encoding><Content-MD5>sQqNsWTgdUEFt6mb5y4/5Q==</Content-MD5></Properties></Blob>"
      "<Blob><Name>a</Name><Properties><Content-Length>0</Content-Length><ResourceType>directory</ResourceType></"
      "Properties></Blob>"
      "<Blob><Name>b</Name><Properties><Content-Length>0</Content-Length></Properties><Metadata><hdi_isfolder>true</"
      "hdi_isfolder></Metadata></Blob>"
      "<Blob><Name Encoded=\"true\">c%01</Name><Properties><Content-Length>0</Content-Length></Properties></Blob>"
      "</Blobs><NextMarker>more</NextMarker></EnumerationResults>",
      "there");
  ASSERT_EQ(page.objects.size(), 2U);
  EXPECT_EQ(page.objects[0].name, "a/b & c");
  EXPECT_EQ(page.objects[0].size_bytes, 12U);
  EXPECT_EQ(page.objects[0].version, "\"0x8D\"");
  EXPECT_EQ(page.objects[0].encoding, "gzip");
  ASSERT_TRUE(page.objects[0].md5);
  EXPECT_EQ((*page.objects[0].md5)[0], std::byte{0xb1});
  EXPECT_EQ(page.objects[1].name, "c\x01");
  EXPECT_FALSE(page.objects[1].md5);
  EXPECT_EQ(page.next_marker, "more");
}

TEST(AzureListing, RefusesWhatIsNone) {
  constexpr const char* kNegativeLength =
      "<EnumerationResults><Blobs><Blob><Name>a</Name><Properties><Content-Length>-1</Content-Length></Properties>"
      "</Blob></Blobs></EnumerationResults>";
  for (const char* text :
       {"", "<html></html>", "no xml", "<EnumerationResults></EnumerationResults>",
        "<EnumerationResults><Blobs><Blob><Name>a</Name></Blob></Blobs></EnumerationResults>", kNegativeLength}) {
    EXPECT_THAT(message_of([&] { parse_azure_page(text, "there"); }), HasSubstr("cannot read the listing of there"))
        << text;
  }
  EXPECT_EQ(code_of_error_xml("<Error><Code>AuthorizationFailure</Code><Message>x</Message></Error>"),
            "AuthorizationFailure");
  EXPECT_EQ(code_of_error_xml("<Error><Code>\x1b[31m</Code></Error>"), "");
}

TEST(AwsSignature, IsThatOfTheDocumentationsExample) {
  // "get-vanilla-query-order-key-case" and its like, AWS's own test suite of Signature Version 4, have no
  // x-amz-content-sha256; the example of the S3 API Reference ("GET Object") has.
  const AwsKeys keys{.access_key = "AKIAIOSFODNN7EXAMPLE", .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
  const auto now = *parse_utc("2013-05-24");
  const auto headers =
      sign_aws_request(keys, "us-east-1", "s3",
                       {.method = "GET",
                        .path = "/test.txt",
                        .headers = {{"host", "examplebucket.s3.amazonaws.com"}, {"range", "bytes=0-9"}}},
                       now);
  EXPECT_EQ(headers.back().second,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  // "GET Bucket (List Objects)".
  const auto listing = sign_aws_request(keys, "us-east-1", "s3",
                                        {.method = "GET",
                                         .path = "/",
                                         .query = {{"prefix", "J"}, {"max-keys", "2"}},
                                         .headers = {{"host", "examplebucket.s3.amazonaws.com"}}},
                                        now);
  EXPECT_THAT(listing.back().second,
              HasSubstr("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(AwsSignature, CoversABody) {
  // "PUT Object" of the same reference.
  const AwsKeys keys{.access_key = "AKIAIOSFODNN7EXAMPLE", .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
  const auto headers = sign_aws_request(keys, "us-east-1", "s3",
                                        {.method = "PUT",
                                         .path = "/" + encode_path("test$file.text"),
                                         .headers = {{"host", "examplebucket.s3.amazonaws.com"},
                                                     {"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                                     {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                                         .body = as_bytes("Welcome to Amazon S3.")},
                                        *parse_utc("2013-05-24"));
  EXPECT_THAT(headers.back().second,
              HasSubstr("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(AwsKeys, AreThoseOfTheProfile) {
  const std::string text =
      "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[ other "
      "]\r\naws_access_key_id=C\naws_secret_access_key = D=E\naws_session_token=F\n[half]\naws_access_key_id=G\n";
  EXPECT_EQ(aws_keys_of_profile(text, "default")->secret_key, "B");
  EXPECT_EQ(aws_keys_of_profile(text, "other")->secret_key, "D=E");
  EXPECT_EQ(aws_keys_of_profile(text, "other")->session_token, "F");
  EXPECT_FALSE(aws_keys_of_profile(text, "missing"));
  EXPECT_THAT(message_of([&] { aws_keys_of_profile(text, "half"); }), HasSubstr("the profile 'half' lacks"));
}

TEST(S3Listing, ReadsAPageAndRefusesWhatIsNone) {
  const S3Page page = parse_s3_page(
      "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t</"
      "NextContinuationToken>"
      "<Contents><Key>a+b%2Bc/d</Key><Size>7</Size><ETag>&quot;e&quot;</ETag></Contents></ListBucketResult>",
      "there");
  ASSERT_EQ(page.objects.size(), 1U);
  EXPECT_EQ(page.objects[0].name, "a b+c/d");
  EXPECT_EQ(page.objects[0].version, "\"e\"");
  EXPECT_EQ(page.next, "t");
  for (const char* text : {"", "<a/>", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
                           "<ListBucketResult><Contents><Key>a</Key><Size>many</Size></Contents></ListBucketResult>"}) {
    EXPECT_THAT(message_of([&] { parse_s3_page(text, "there"); }), HasSubstr("cannot read the listing of there"))
        << text;
  }
}

TEST(ObjectNames, ThatAreAFolderTooAreOneErrorThatNamesBoth) {
  const auto below = [](std::vector<Object> objects) {
    return message_of([&] { name_below(objects, "a", "az://c/a"); });
  };
  const std::string said = below({{.name = "a", .size_bytes = 1}, {.name = "a/b", .size_bytes = 1}, {.name = "ab"}});
  EXPECT_THAT(said, HasSubstr("az://c/a is both an object, 'a', and a folder, with 'a/b'"));
  EXPECT_EQ(below({{.name = "a", .size_bytes = 1}, {.name = "a-b"}, {.name = "ab"}}), "nothing was thrown");
  EXPECT_EQ(below({{.name = "a", .size_bytes = 1}, {.name = "a/"}}), "nothing was thrown") << "a folder's marker";
  EXPECT_EQ(below({{.name = "a/b", .size_bytes = 1}}), "nothing was thrown");
}

TEST(IndexPage, FindsFilesAndFoldersOfThreeServers) {
  // nginx, Apache with its sorting links, Python's http.server.
  EXPECT_THAT(
      links_of_index_page("<a href=\"../\">../</a><a href=\"a%20b/\">a b/</a> - <A HREF=\"x.bin\">x.bin</A> 12"),
      ElementsAre("a b/", "x.bin"));
  EXPECT_THAT(
      links_of_index_page(
          "<a href=\"?C=N;O=D\">Name</a><a href=\"/up/\">Parent Directory</a><a href='a&amp;b.gz'>a&amp;b.gz</a>"),
      ElementsAre("a&b.gz"));
  EXPECT_THAT(links_of_index_page("<a href=\"./y.txt\">y</a><a href=\"http://other/z\">z</a><a "
                                  "href=\"mailto:a@b\">m</a><a href=\"#top\">t</a>"),
              ElementsAre("y.txt"));
  EXPECT_THAT(
      links_of_index_page("<a href=\"%2e%2e/\">up</a><a href=\"%2e%2e%2fx\">up</a><a href=\"a/b\">deep</a><a href="),
      ElementsAre());
}

TEST(Open, RefusesNamesOfNothing) {
  const auto said = [](const std::string& name, const Credentials& credentials = {}) {
    return message_of([&] { open_source(name, credentials); });
  };
  EXPECT_THAT(said(""), HasSubstr("is empty"));
  EXPECT_THAT(said("ftp://host/x"), HasSubstr("ftp:// is not known"));
  EXPECT_THAT(said("az://data/a*b/c", {.azure_account = "me"}), HasSubstr("a '*' may only be the last part"));
  EXPECT_THAT(said("az://data", {.azure_account = "me", .azure_key = "abc"}), HasSubstr("is not base64"));
  EXPECT_THAT(said("az://data", {.azure_connection_string = "nothing"}),
              HasSubstr("neither an AccountName nor a BlobEndpoint"));
  EXPECT_THAT(said("https://a.blob.core.windows.net/c?sv=1&sig=secret"), ::testing::Not(HasSubstr("secret")));
}

// A name that is cut off at a '#' or a '?' names another object, whose bytes would be taken for this one's.
TEST(Open, CutsNoNameOffWhateverTheSchemeAndItsCharacters) {
  const auto name = [](const std::string& given) { return open_source(given, {.azure_account = "a"})->name(); };
  const std::string blobs = "https://a.blob.core.windows.net/";
  EXPECT_EQ(name("s3://b/p/a#1?x%20y"), "s3://b/p/a#1?x%20y");
  EXPECT_EQ(name("az://c/p/a#1?x%20y"), blobs + "c/p/a%231%3Fx%2520y");
  EXPECT_EQ(name("az://c@a.blob.core.windows.net/a#1"), blobs + "c/a%231");
  EXPECT_EQ(name("az://c/a#1?sv=1&se=2030-01-01&sp=rl&sig=secret"), blobs + "c/a%231");
  EXPECT_EQ(name(blobs + "c/a%231%3Fx%2520y"), name("az://c/a#1?x%20y"));  // As a store opens it again.
  EXPECT_EQ(name("file:///a%20b/c#1?2"), "/a b/c#1?2");
  EXPECT_EQ(name("/a%20b/c#1?2"), "/a%20b/c#1?2");
  EXPECT_EQ(shown_url("s3://b/a#1?2"), "s3://b/a#1?2");
  EXPECT_EQ(shown_url("/a#1?2"), "/a#1?2");
  const auto said = [](const std::string& given) { return message_of([&] { open_source(given, {}); }); };
  for (const std::string url : {"https://host/a#b", "http://host/a#", "https://a.blob.core.windows.net/c/a#b"})
    EXPECT_THAT(said(url), HasSubstr("never reaches the server; write %23")) << url;
  EXPECT_THAT(said("https://host/a#b?sig=secret"), ::testing::Not(HasSubstr("secret")));
  EXPECT_THAT(said("file://host/a"), HasSubstr("file:///PATH"));
  std::vector<Object> none;
  EXPECT_THAT(message_of([&] { name_below(none, "a%20b", "az://c/a%20b"); }), HasSubstr("%20 is no space"));
}

TEST(Open, SendsNoSecretToAHostThatOnlyLooksLikeAzures) {
  const std::string sas = "sv=1&se=2030-01-01&sp=rl&sig=secret";
  const auto said = [](const std::string& name, const Credentials& credentials) {
    return message_of([&] { open_source(name, credentials); });
  };
  const std::string refusal = "neither the SAS nor the key is sent there";
  for (const std::string name : {"https://a.blob.core.example.com/c", "https://a.blob.core.windows.net.example.com/c",
                                 "https://example.com\\.blob.core.windows.net/c", "az://c@example.com/d",
                                 "az://c@a.blob.core.example.com/d", "abfss://c@a.dfs.core.example.com/d"}) {
    EXPECT_THAT(said(name, {.azure_sas = sas, .sas_is_for_all = true}), HasSubstr(refusal)) << name;
    EXPECT_THAT(said(name, {.azure_account = "a", .azure_key = "c2VjcmV0"}), HasSubstr(refusal)) << name;
    EXPECT_THAT(said(name, {}), ::testing::Not(HasSubstr(refusal))) << name;
  }
  // These name an ordinary web server, which gets nothing of the account's.
  for (const std::string user : {"a.blob.core.windows.net", "a.blob.core.windows.net:x"}) {
    EXPECT_EQ(open_source("https://" + user + "@example.com/c", {.azure_sas = sas})->name(), "https://example.com/c");
  }
  const std::string own = "AccountName=a;SharedAccessSignature=" + sas;
  for (const auto& [name, account] :
       {std::pair("https://a.blob.core.windows.net/c", own), std::pair("https://A.Blob.Core.Windows.Net:443/c", own),
        std::pair("https://a.z1.blob.storage.azure.net/c", own),
        std::pair("https://a.blob.core.chinacloudapi.cn/c", own),
        std::pair("https://a.blob.mine.example.com/c", own + ";EndpointSuffix=mine.example.com"),
        std::pair("https://mine.example.com/c", own + ";BlobEndpoint=https://mine.example.com/")}) {
    EXPECT_EQ(said(name, {.azure_connection_string = account}), "nothing was thrown") << name;
  }
  // One's own SAS in the URL is for that server.
  EXPECT_EQ(said("https://a.blob.core.example.com/c?" + sas, {.azure_sas = "other"}), "nothing was thrown");
}

TEST(Open, TakesAnEmulatorOnThisMachineForAzureWhereASasIsGivenForIt) {
  const std::string sas = "sv=1&se=2030-01-01&sp=rl&sig=secret";
  const std::string url = "http://127.0.0.1:10000/me/c/";
  const Credentials given{.azure_sas = sas, .sas_is_for_all = true};
  EXPECT_TRUE(is_of_azure(url, given));
  EXPECT_EQ(open_source(url, given)->name(), "http://127.0.0.1:10000/me/c") << "a container has no '/' behind";
  EXPECT_TRUE(is_of_azure(url, {.azure_account = "me", .azure_sas = sas}));
  EXPECT_FALSE(is_of_azure(url, {.azure_account = "other", .azure_sas = sas}));
  EXPECT_FALSE(is_of_azure(url, {}));
  for (const std::string other : {"http://127.0.0.1.example.com/me/c/", "http://host:10000/me/c/", "http://[::1]/me/"})
    EXPECT_FALSE(is_of_azure(other, given)) << other;
}

TEST(Open, NamesSourcesWithoutTheirSecrets) {
  const std::string sas = "?sv=1&se=2030-01-01&sp=rl&sig=secret";
  EXPECT_EQ(open_source("https://a.blob.core.windows.net/c/d/" + sas, {})->name(),
            "https://a.blob.core.windows.net/c/d");
  EXPECT_EQ(open_source("http://127.0.0.1:10000/me/c" + sas, {})->name(), "http://127.0.0.1:10000/me/c");
  EXPECT_EQ(open_source("abfss://c@a.dfs.core.windows.net/d", {})->name(), "https://a.blob.core.windows.net/c/d");
  EXPECT_EQ(open_source("az://c/d", {.azure_account = "a"})->name(), "https://a.blob.core.windows.net/c/d");
  EXPECT_EQ(open_source("https://user:word@host/x?token=1", {})->name(), "https://host/x");
  EXPECT_EQ(open_source("file:///a%20b/", {})->name(), "/a b");
}

}  // namespace
}  // namespace gyre::store
