//! Query parameters of the API: unknown ones are refused, because an ignored filter would return too much.
//! The known ones are those of the OpenAPI document.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;
use utoipa::openapi::OpenApi;

use crate::page;
use crate::problem::Problem;

/// The query parameters of all operations, by path template and method in lower case.
pub struct KnownParameters(BTreeMap<String, BTreeMap<String, Vec<String>>>);

impl KnownParameters {
    /// Reads the parameters in a document.
    pub fn of(document: &OpenApi) -> KnownParameters {
        let document = serde_json::to_value(document).expect("a document is JSON");
        let items = document["paths"].as_object().into_iter().flatten();
        let paths = items.map(|(path, item)| {
            let operations = item.as_object().into_iter().flatten();
            let operations = operations.map(|(method, operation)| (method.clone(), in_query(operation)));
            (path.clone(), operations.collect())
        });
        KnownParameters(paths.collect())
    }

    /// The query parameters of an operation; none if the document has no such operation.
    fn of_operation(&self, method: &Method, path: &str) -> Option<&[String]> {
        // A literal segment comes before a placeholder in the order of the map.
        let (_, operations) = self.0.iter().find(|(template, _)| matches(template, path))?;
        let method = if *method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
        operations.get(&method).map(Vec::as_slice)
    }

    /// Checks the names in a query.
    fn check<'a>(
        &self,
        method: &Method,
        path: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Problem> {
        let Some(known) = self.of_operation(method, path) else { return Ok(()) };
        let Some(unknown) = names.into_iter().find(|name| !known.iter().any(|known| known == name)) else {
            return Ok(());
        };
        let right = match known.is_empty() {
            true => format!("{method} {path} has no parameters"),
            false => format!("use {}", known.join(", ")),
        };
        Err(Problem::wrong(format!("{unknown:?} is not a parameter: {right}")))
    }
}

impl KnownParameters {
    /// Checks the names in the query of a page.
    fn check_page<'a>(
        &self,
        method: &Method,
        path: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Problem> {
        let mut names = names.into_iter().filter(|name| *name != NOTE);
        if LISTS.contains(&path) {
            return self.check(method, &format!("/api/v1{path}"), names);
        }
        match names.next().filter(|_| PLAIN.iter().any(|template| matches(template, path))) {
            Some(unknown) => {
                Err(Problem::wrong(format!("{unknown:?} is not a parameter: {path} has no parameters")))
            }
            None => Ok(()),
        }
    }
}

fn in_query(operation: &Value) -> Vec<String> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let parameters = parameters.filter(|parameter| parameter["in"] == "query");
    parameters.filter_map(|parameter| Some(parameter["name"].as_str()?.to_owned())).collect()
}

/// True if a path has the form of a template such as `/topics/{name}`.
fn matches(template: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found || wanted.starts_with('{') => {}
            _ => return false,
        }
    }
}

/// Refuses requests with unknown query parameters.
pub async fn check(State(known): State<Arc<KnownParameters>>, request: Request, next: Next) -> Response {
    if request.uri().query().is_none() {
        return next.run(request).await;
    }
    let names = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let names = names.map(|Query(pairs)| pairs).unwrap_or_default();
    let names = names.iter().map(|(name, _)| name.as_str());
    match known.check(request.method(), request.uri().path(), names) {
        Ok(()) => next.run(request).await,
        Err(problem) => page::json(problem.status, &problem.answer()),
    }
}

/// The lists that are pages and operations of the API, with the same parameters.
const LISTS: [&str; 8] = [
    "/topics",
    "/groups",
    "/brokers",
    "/clients",
    "/transactions",
    "/hanging-transactions",
    "/acls",
    "/acls/rights",
];
/// Pages without parameters.
const PLAIN: [&str; 6] =
    ["/", "/users", "/quotas", "/topics/{name}/groups", "/topics/{name}/producers", "/topics/{name}/purge"];
/// The parameter of any page that names the note of the request before.
const NOTE: &str = "note";

/// Refuses pages with unknown query parameters, as far as their parameters are known here.
pub async fn check_page(State(known): State<Arc<KnownParameters>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if request.uri().query().is_none() {
        return next.run(request).await;
    }
    let names = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let names = names.map(|Query(pairs)| pairs).unwrap_or_default();
    match known.check_page(request.method(), path, names.iter().map(|(name, _)| name.as_str())) {
        Ok(()) => next.run(request).await,
        Err(problem) => page::refusal(path, &problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameters_are_named_with_the_known_ones() {
        let known = KnownParameters::of(crate::api::described().get_openapi());
        let check = |method: Method, path: &str, names: &[&str]| {
            known.check(&method, path, names.iter().copied()).map_err(|problem| problem.message)
        };
        assert_eq!(check(Method::GET, "/api/v1/hanging-transactions", &["topic", "minutes"]), Ok(()));
        let wrong = check(Method::HEAD, "/api/v1/hanging-transactions", &["topic", "minutos"]);
        assert_eq!(wrong, Err("\"minutos\" is not a parameter: use topic, minutes".to_owned()));
        let wrong = check(Method::GET, "/api/v1/groups/g", &["x"]);
        assert_eq!(wrong, Err("\"x\" is not a parameter: GET /api/v1/groups/g has no parameters".to_owned()));
        let plan = "/api/v1/topics/t/moves/plan";
        assert_eq!(check(Method::GET, plan, &["partitions", "without", "exactly"]), Ok(()));
        assert!(check(Method::POST, "/api/v1/topics", &["dry_run"]).is_err());
        assert_eq!(check(Method::GET, "/api/v1/nowhere", &["x"]), Ok(()), "not found, later");
    }

    #[test]
    fn lists_as_pages_have_the_parameters_of_the_api() {
        let known = KnownParameters::of(crate::api::described().get_openapi());
        let check = |path: &str, names: &[&str]| {
            known.check_page(&Method::GET, path, names.iter().copied()).map_err(|problem| problem.message)
        };
        assert_eq!(check("/groups", &["filter", "kind", "state", "sort", "order", "page", "note"]), Ok(()));
        assert_eq!(check("/topics", &["filter", "state", "internal", "sort", "order", "page"]), Ok(()));
        let wrong = check("/groups", &["name"]).expect_err("it is unknown");
        assert!(wrong.starts_with("\"name\" is not a parameter: use filter, "), "{wrong}");
        for list in LISTS {
            assert!(check(list, &["nome"]).is_err(), "{list} is no operation");
        }
        let wrong = check("/topics/orders/purge", &["x"]).expect_err("it is unknown");
        assert_eq!(wrong, "\"x\" is not a parameter: /topics/orders/purge has no parameters");
        assert_eq!((check("/users", &["note"]), check("/create-topic", &["like"])), (Ok(()), Ok(())));
    }
}
