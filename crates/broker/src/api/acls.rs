//! DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 1 to 3: answered as Kafka answers without an
//! authorizer. The configuration refuses to name one, so there is none.

use super::Call;
use crate::broker::Broker;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_acls_response::AclCreationResult;
use thalweg_wire::request::delete_acls_response::DeleteAclsFilterResult;
use thalweg_wire::request::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse,
};

const DISABLED: ErrorCode = ErrorCode::SecurityDisabled;

const MESSAGE: &str = "No Authorizer is configured.";

/// There is nothing to describe.
pub fn describe(_: &Broker, _: &Call, _: DescribeAclsRequest) -> DescribeAclsResponse {
    let error_message = Some("No Authorizer is configured on the broker".to_owned());
    DescribeAclsResponse { error_code: DISABLED.code(), error_message, ..Default::default() }
}

/// Nothing can be created.
pub fn create(_: &Broker, _: &Call, request: CreateAclsRequest) -> CreateAclsResponse {
    let refused = AclCreationResult { error_code: DISABLED.code(), error_message: Some(MESSAGE.to_owned()) };
    CreateAclsResponse { throttle_time_ms: 0, results: vec![refused; request.creations.len()] }
}

/// Nothing can be deleted.
pub fn delete(_: &Broker, _: &Call, request: DeleteAclsRequest) -> DeleteAclsResponse {
    let refused = DeleteAclsFilterResult {
        error_code: DISABLED.code(),
        error_message: Some(MESSAGE.to_owned()),
        ..Default::default()
    };
    DeleteAclsResponse { throttle_time_ms: 0, filter_results: vec![refused; request.filters.len()] }
}
