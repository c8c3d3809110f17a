//! ACLs, users and quotas.

use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Body, ChangeAnswer, RequestView, answer, done};
use crate::cluster::access::{self, AclLine, AclList, AclQuery, Right, RightsQuery};
use crate::cluster::users::{self, NewPassword, QuotaChange, QuotaLine, User};
use crate::problem::ErrorAnswer;

/// A SCRAM credential to remove.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The user name.
    name: String,
    /// `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    mechanism: String,
}

/// Lists one page of ACLs.
#[utoipa::path(
    get,
    path = "/api/v1/acls",
    tag = "access",
    params(AclQuery),
    responses((status = 200, body = AclList), (status = "default", body = ErrorAnswer))
)]
pub async fn acls(RequestView(view): RequestView, Query(query): Query<AclQuery>) -> Response {
    answer(StatusCode::OK, access::list(&view, &query).await)
}

/// Creates an ACL.
#[utoipa::path(
    post,
    path = "/api/v1/acls",
    tag = "access",
    request_body = AclLine,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn create_acl(RequestView(view): RequestView, Body(acl): Body<AclLine>) -> Response {
    done(access::create(&view, &acl).await, "The ACL was created")
}

/// Deletes an ACL.
#[utoipa::path(
    delete,
    path = "/api/v1/acls",
    tag = "access",
    request_body = AclLine,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn delete_acl(RequestView(view): RequestView, Body(acl): Body<AclLine>) -> Response {
    done(access::delete(&view, &acl).await.map(drop), "The ACL was deleted")
}

/// Evaluates the ACLs for one principal and one resource.
#[utoipa::path(
    get,
    path = "/api/v1/acls/rights",
    tag = "access",
    params(RightsQuery),
    responses((status = 200, body = Vec<Right>), (status = "default", body = ErrorAnswer))
)]
pub async fn rights(RequestView(view): RequestView, Query(query): Query<RightsQuery>) -> Response {
    answer(StatusCode::OK, access::rights(&view, &query).await)
}

/// Lists the users with SCRAM credentials.
#[utoipa::path(
    get,
    path = "/api/v1/users",
    tag = "access",
    responses((status = 200, body = Vec<User>), (status = "default", body = ErrorAnswer))
)]
pub async fn users(RequestView(view): RequestView) -> Response {
    answer(StatusCode::OK, users::list(&view).await)
}

/// Sets the password of a new or existing user.
#[utoipa::path(
    post,
    path = "/api/v1/users",
    tag = "access",
    request_body = NewPassword,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn set_password(RequestView(view): RequestView, Body(new): Body<NewPassword>) -> Response {
    done(users::set_password(&view, &new).await, "The password was set")
}

/// Removes a credential of a user.
#[utoipa::path(
    delete,
    path = "/api/v1/users",
    tag = "access",
    request_body = Credential,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn remove_credential(RequestView(view): RequestView, Body(of): Body<Credential>) -> Response {
    done(users::remove(&view, &of.name, &of.mechanism).await, "The credential was removed")
}

/// Lists the client quotas.
#[utoipa::path(
    get,
    path = "/api/v1/quotas",
    tag = "access",
    responses((status = 200, body = Vec<QuotaLine>), (status = "default", body = ErrorAnswer))
)]
pub async fn quotas(RequestView(view): RequestView) -> Response {
    answer(StatusCode::OK, users::quotas(&view).await)
}

/// Sets or removes a quota.
#[utoipa::path(
    post,
    path = "/api/v1/quotas",
    tag = "access",
    request_body = QuotaChange,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn set_quota(RequestView(view): RequestView, Body(change): Body<QuotaChange>) -> Response {
    done(users::set_quota(&view, &change).await, "The quota was changed")
}
